// grad-in-validation: the validation pass records an autograd graph that no
// backward pass uses. Its activations stay in memory meanwhile.
// Fix: an InferenceMode guard around the pass.
#include <stepscope/range.h>

#include <optional>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainGradInValidation(const Run& run) {
  torch::nn::Sequential network = Mlp({256, 256, 256, 256}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  Batch batch = MakeBatch(256, 256, 256, run.device);
  Batch validation = MakeBatch(256, 256, 256, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    {
      stepscope::PhaseRange phase(stepscope::Phase::kValidate);
      std::optional<c10::InferenceMode> guard;
      if (run.fixed) guard.emplace();
      network->eval();
      torch::mse_loss(network->forward(validation.inputs), validation.targets);
      network->train();
    }
    profile.Step();
  }
}

}  // namespace

extern const Pattern kGradInValidation = {
    .rule = "grad-in-validation",
    .habit = "validates with gradients on",
    .fix = "c10::InferenceMode guard",
    .train = &TrainGradInValidation,
    // On a CPU the habit costs memory, but little time: under 1 us per node.
    .is_note = true};

}  // namespace gallery
