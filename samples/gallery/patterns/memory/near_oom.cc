// near-oom: nearly all of the device's memory is held, so one longer batch ends
// the run.
// Fix: hold less.
#include <ATen/DeviceAccelerator.h>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainNearOom(const Run& run) {
  torch::nn::Sequential network = Mlp({1024, 1024, 1024}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(1024, 1024, 1024, run.device);
  torch::Tensor held;  // like a forgotten list of outputs
  if (run.device.is_cuda()) {
    const auto [free, total] = at::getDeviceAllocator(run.device.type())
                                   ->getMemoryInfo(run.device.index());
    const double share = run.fixed ? 0.5 : 0.94;
    const auto bytes =
        static_cast<int64_t>(share * static_cast<double>(total)) -
        static_cast<int64_t>(total - free);
    held = torch::empty({bytes}, torch::dtype(torch::kByte).device(run.device));
  }

  stepscope::ProfileOptions options = run.options();
  options.profile_memory = true;
  stepscope::Profile profile(std::move(options));
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kNearOom = {
    .rule = "near-oom",
    .habit = "holds 94 % of the device's memory",
    .fix = "hold less",
    .train = &TrainNearOom,
    .needs_gpu = true,
    .also = {{"tensor-cores-idle", "float32", /*when_fixed=*/true},
             {"small-batch", "a small batch", /*when_fixed=*/true}}};

}  // namespace gallery
