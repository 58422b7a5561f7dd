// cudnn-benchmark-off: sizes never change, but cuDNN still guesses the
// algorithm instead of trying which one is fastest.
// Fix: setBenchmarkCuDNN(true).
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainCudnnBenchmarkOff(const Run& run) {
  at::globalContext().setBenchmarkCuDNN(run.fixed);
  torch::nn::Sequential network;
  for (int64_t channels : {3, 64, 64, 64}) {
    network->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels, 64, 3).padding(1)));
    network->push_back(torch::nn::ReLU());
  }
  network->to(run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const torch::Tensor images = torch::randn({32, 3, 112, 112}, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    network->forward(images).square().mean().backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kCudnnBenchmarkOff = {
    .rule = "cudnn-benchmark-off",
    .habit = "lets cuDNN guess its algorithms",
    .fix = "setBenchmarkCuDNN(true)",
    .train = &TrainCudnnBenchmarkOff,
    .needs_gpu = true,
    .also = {{"tensor-cores-idle", "convolutions in TF32", /*when_fixed=*/true},
             {"layout-transpose", "NCHW tensors", /*when_fixed=*/true},
             {"unfused-pointwise", "activations and the loss", true}}};

}  // namespace gallery
