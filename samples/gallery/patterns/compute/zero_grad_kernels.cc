// zero-grad-kernels: gradients are filled with zeros after each step, and the
// next backward pass adds to them instead of writing them.
// Fix: zero_grad(/*set_to_none=*/true), which is the default.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainZeroGradKernels(const Run& run) {
  // With large weights and few samples, memory traffic limits the step.
  torch::nn::Sequential network = Mlp({2048, 2048, 2048}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(8, 2048, 2048, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::mse_loss(network->forward(batch.inputs), batch.targets).backward();
    sgd.step();
    sgd.zero_grad(/*set_to_none=*/run.fixed);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kZeroGradKernels = {.rule = "zero-grad-kernels",
                                         .habit = "fills gradients with zeros",
                                         .fix = "zero_grad(true), the default",
                                         .train = &TrainZeroGradKernels};

}  // namespace gallery
