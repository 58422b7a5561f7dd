// explicit-sync: the program waits for the whole GPU after each phase, perhaps
// to measure the time, and the GPU then waits for the host.
// Fix: remove the synchronization; measure with events or a profiler.
#include "device.h"
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int kSyncsPerStep = 10;

void TrainExplicitSync(const Run& run) {
  torch::nn::Sequential network = Mlp({256, 256, 256, 256}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(512, 256, 256, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    for (int part = 0; part < kSyncsPerStep; ++part) {
      TrainStep(network, sgd, batch);
      if (!run.fixed) WaitFor(run.device);
    }
    profile.Step();
  }
}

}  // namespace

extern const Pattern kExplicitSync = {
    .rule = "explicit-sync",
    .habit = "torch::cuda::synchronize() in the loop",
    .fix = "leave it out",
    .train = &TrainExplicitSync,
    .needs_gpu = true,
    .also = {{"launch-bound", "small kernels", /*when_fixed=*/true},
             {"small-batch", "the same", /*when_fixed=*/true}}};

}  // namespace gallery
