// small-batch: eight samples at a time keep only a fraction of the device busy,
// and its memory is nearly empty.
// Fix: a larger batch (and a learning rate that fits it).
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainSmallBatch(const Run& run) {
  torch::nn::Sequential network = Mlp({1024, 1024, 1024, 1024}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(run.fixed ? 16384 : 8, 1024, 1024, run.device);

  stepscope::ProfileOptions options = run.options();
  options.profile_memory = true;  // tells whether a larger batch fits
  stepscope::Profile profile(std::move(options));
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kSmallBatch = {
    .rule = "small-batch",
    .habit = "eight samples a step",
    .fix = "a larger batch",
    .train = &TrainSmallBatch,
    .needs_gpu = true,
    .also = {{"launch-bound", "tiny kernels"},
             {"memory-headroom", "that is why it fits", /*when_fixed=*/true},
             {"tensor-cores-idle", "float32", /*when_fixed=*/true},
             {"tf32-off", "float32", /*when_fixed=*/true}}};

}  // namespace gallery
