// cores-idle: one intra-op thread on a machine with two cores.
// Fix: as many threads as there are cores.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainCoresIdle(const Run& run) {
  torch::set_num_threads(run.fixed ? 2 : 1);
  torch::nn::Sequential network = Mlp({512, 512, 512}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(256, 512, 512, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kCoresIdle = {.rule = "cores-idle",
                                   .habit = "one thread on two cores",
                                   .fix = "torch::set_num_threads(2)",
                                   .train = &TrainCoresIdle,
                                   .cores = 2};

}  // namespace gallery
