// debug-api-on: anomaly detection, left on after a search for NaNs, checks
// every gradient of every step.
// Fix: switch it off.
#include <torch/csrc/autograd/anomaly_mode.h>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainDebugApiOn(const Run& run) {
  torch::autograd::AnomalyMode::set_enabled(!run.fixed);
  torch::nn::Sequential network = Mlp({128, 128, 128, 128}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(2048, 128, 128, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    profile.Step();
  }
  torch::autograd::AnomalyMode::set_enabled(false);
}

}  // namespace

extern const Pattern kDebugApiOn = {.rule = "debug-api-on",
                                    .habit = "anomaly detection left on",
                                    .fix = "AnomalyMode::set_enabled(false)",
                                    .train = &TrainDebugApiOn};

}  // namespace gallery
