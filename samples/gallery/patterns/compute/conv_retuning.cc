// conv-retuning: cudnn.benchmark is on, but pictures come in a new size each
// time, so cuDNN tries all its algorithms for each new size.
// Fix: pad to one size (or to a few).
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainConvRetuning(const Run& run) {
  at::globalContext().setBenchmarkCuDNN(true);
  torch::nn::Sequential network;
  for (int64_t channels : {3, 32, 32}) {
    network->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels, 32, 3).padding(1)));
    network->push_back(torch::nn::ReLU());
  }
  network->to(run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    const int64_t side = run.fixed ? 96 : 64 + step;
    network->forward(torch::randn({16, 3, side, side}, run.device))
        .square()
        .mean()
        .backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kConvRetuning = {
    .rule = "conv-retuning",
    .habit = "pictures in ever new sizes under cudnn.benchmark",
    .fix = "pad to one size",
    .train = &TrainConvRetuning,
    .needs_gpu = true,
    .also = {{"allocator-churn", "new sizes need new memory, too"},
             {"small-batch", "small pictures", /*when_fixed=*/true},
             {"launch-bound", "the same", /*when_fixed=*/true}}};

}  // namespace gallery
