// cpu-oversubscription: four intra-op threads share one core, so at the end of
// every op the others wait for the thread that has the core.
// Fix: as many threads as there are cores.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainCpuOversubscription(const Run& run) {
  torch::set_num_threads(run.fixed ? 1 : 4);
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

extern const Pattern kCpuOversubscription = {
    .rule = "cpu-oversubscription",
    .habit = "four threads on one core",
    .fix = "torch::set_num_threads(cores)",
    .train = &TrainCpuOversubscription};

}  // namespace gallery
