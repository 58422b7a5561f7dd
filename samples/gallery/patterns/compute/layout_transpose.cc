// layout-transpose: with 16 bits cuDNN convolves only channels-last tensors, so
// it transposes every NCHW tensor before and after.
// Fix: keep the parameters and the input channels-last.
#include <ATen/autocast_mode.h>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainLayoutTranspose(const Run& run) {
  at::globalContext().setBenchmarkCuDNN(true);
  torch::nn::Sequential network;
  for (int i = 0; i < 6; ++i) {
    network->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(64, 64, 3).padding(1).bias(false)));
    network->push_back(torch::nn::ReLU());
  }
  network->to(run.device);
  torch::Tensor images = torch::randn({64, 64, 56, 56}, run.device);
  if (run.fixed) {  // Module::to takes no memory format
    for (torch::Tensor& weight : network->parameters()) {
      weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
    }
    images = images.contiguous(at::MemoryFormat::ChannelsLast);
  }
  torch::optim::SGD sgd(network->parameters(), 0.01);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    at::autocast::set_autocast_dtype(run.device.type(), at::kBFloat16);
    at::autocast::set_autocast_enabled(run.device.type(), true);
    torch::Tensor output = network->forward(images);
    at::autocast::set_autocast_enabled(run.device.type(), false);
    at::autocast::clear_cache();
    output.to(torch::kFloat).square().mean().backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kLayoutTranspose = {
    .rule = "layout-transpose",
    .habit = "convolves NCHW tensors in 16 bits",
    .fix = "MemoryFormat::ChannelsLast",
    .train = &TrainLayoutTranspose,
    .needs_gpu = true,
    .also = {{"unfused-pointwise", "activations, casts and the loss",
              /*when_fixed=*/true}}};

}  // namespace gallery
