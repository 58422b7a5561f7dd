// bias-before-norm: convolutions add a bias that the next batch norm
// subtracts again with the mean.
// Fix: Conv2dOptions(...).bias(false).
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainBiasBeforeNorm(const Run& run) {
  torch::nn::Sequential network;
  for (int64_t channels : {3, 16, 16}) {
    network->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels, 16, 3).padding(1).bias(!run.fixed)));
    network->push_back(torch::nn::BatchNorm2d(16));
    network->push_back(torch::nn::ReLU());
  }
  network->to(run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const torch::Tensor images = torch::randn({16, 3, 32, 32}, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    network->forward(images).square().mean().backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kBiasBeforeNorm = {
    .rule = "bias-before-norm",
    .habit = "convolutions with a bias before batch norm",
    .fix = "Conv2dOptions(...).bias(false)",
    .train = &TrainBiasBeforeNorm,
    .is_note = true};  // on a CPU the fused bias costs next to nothing

}  // namespace gallery
