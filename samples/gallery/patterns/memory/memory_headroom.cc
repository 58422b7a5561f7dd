// memory-headroom: only a few hundred kilobytes of the device's memory are in
// use. That is not a fault, but it means that the batch can grow.
// Fix: a batch that takes about half of the memory.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int64_t kWideLayer = 1024;

// Returns the number of samples that take half of the free memory.
int64_t LargeBatch(torch::Device device) {
  if (!device.is_cuda()) return 64;
  const auto [free, total] =
      at::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return static_cast<int64_t>(free / 2) / (10 * kWideLayer * 4);
}

void TrainMemoryHeadroom(const Run& run) {
  torch::nn::Sequential network =
      Mlp({kWideLayer, kWideLayer, kWideLayer}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(run.fixed ? LargeBatch(run.device) : 8,
                                kWideLayer, kWideLayer, run.device);

  stepscope::ProfileOptions options = run.options();
  options.profile_memory = true;
  stepscope::Profile profile(std::move(options));
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kMemoryHeadroom = {
    .rule = "memory-headroom",
    .habit = "leaves nearly all memory free",
    .fix = "a larger batch",
    .train = &TrainMemoryHeadroom,
    .needs_gpu = true,
    .is_note = true,
    .also = {{"small-batch", "what follows from it"},
             {"launch-bound", "tiny kernels"},
             {"tensor-cores-idle", "float32", /*when_fixed=*/true}}};

}  // namespace gallery
