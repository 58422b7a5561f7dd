// host-sync: the loss of every small part of the step is read back immediately,
// so the host never gets ahead of the GPU.
// Fix: add up the losses on the device, and read them only sometimes.
#include <cstdio>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int kParts = 10;

void TrainHostSync(const Run& run) {
  torch::nn::Sequential network = Mlp({256, 256, 256, 256}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(512, 256, 256, run.device);

  stepscope::Profile profile(run.options());
  torch::Tensor sum = torch::zeros({}, run.device);
  double read = 0;
  for (int step = 0; step < Run::kSteps; ++step) {
    for (int part = 0; part < kParts; ++part) {
      torch::Tensor loss = TrainStep(network, sgd, batch);
      if (run.fixed) {
        sum += loss;
      } else {
        read += loss.item<double>();
      }
    }
    profile.Step();
  }
  if (run.fixed) read = sum.item<double>();
  std::fprintf(stderr, "mean loss %.3f\n", read / (Run::kSteps * kParts));
}

}  // namespace

extern const Pattern kHostSync = {
    .rule = "host-sync",
    .habit = "reads the loss back at once",
    .fix = "add up on the device, read seldom",
    .train = &TrainHostSync,
    .needs_gpu = true,
    .also = {{"launch-bound", "small kernels", /*when_fixed=*/true},
             {"small-batch", "the same", /*when_fixed=*/true}}};

}  // namespace gallery
