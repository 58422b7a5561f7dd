// warmup-in-window: recording begins with the first step, which loads kernels
// and allocates memory, so it is not typical.
// Fix: wait and warm up first, as the default schedule does.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainWarmupInWindow(const Run& run) {
  torch::nn::Sequential network = Mlp({1024, 1024, 1024}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(4096, 1024, 1024, run.device);

  stepscope::ProfileOptions options = run.options();
  if (!run.fixed) options.schedule = {.wait = 0, .warmup = 0, .active = 10};
  stepscope::Profile profile(std::move(options));
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kWarmupInWindow = {
    .rule = "warmup-in-window",
    .habit = "records from the first step",
    .fix = "a schedule with warm-up steps",
    .train = &TrainWarmupInWindow,
    .needs_gpu = true,
    .also = {{"tensor-cores-idle", "float32", /*when_fixed=*/true}}};

}  // namespace gallery
