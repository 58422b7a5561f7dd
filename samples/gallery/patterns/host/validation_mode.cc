// validation-mode: validation switches gradients off but leaves the network in
// training mode. Dropout then makes its results random, and batch norm changes
// its running statistics.
// Fix: eval(), and InferenceMode instead of NoGradGuard.
#include <stepscope/range.h>

#include <optional>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainValidationMode(const Run& run) {
  torch::nn::Sequential network(
      torch::nn::Linear(256, 256), torch::nn::BatchNorm1d(256),
      torch::nn::ReLU(), torch::nn::Dropout(0.5), torch::nn::Linear(256, 256));
  network->to(run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(256, 256, 256, run.device);
  const Batch validation = MakeBatch(256, 256, 256, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    {
      stepscope::PhaseRange phase(stepscope::Phase::kValidate);
      std::optional<c10::InferenceMode> inference;
      std::optional<torch::NoGradGuard> no_grad;
      if (run.fixed) {
        inference.emplace();
        network->eval();
      } else {
        no_grad.emplace();
      }
      torch::mse_loss(network->forward(validation.inputs), validation.targets);
      network->train();
    }
    profile.Step();
  }
}

}  // namespace

extern const Pattern kValidationMode = {.rule = "validation-mode",
                                        .habit = "validates in training mode",
                                        .fix = "eval() and c10::InferenceMode",
                                        .train = &TrainValidationMode};

}  // namespace gallery
