// h2d-fp32-input: images are converted to floats on the host, so four times as
// many bytes cross the bus.
// Fix: upload bytes; cast and normalise them on the device.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainH2dFp32Input(const Run& run) {
  torch::nn::Conv2d stem(torch::nn::Conv2dOptions(3, 32, 7).stride(4));
  stem->to(run.device);
  torch::optim::SGD sgd(stem->parameters(), 0.01);
  torch::Tensor bytes = torch::randint(256, {128, 3, 224, 224}, torch::kByte);
  torch::Tensor images = run.fixed ? bytes : bytes.to(torch::kFloat).div_(255);
  if (run.device.is_cuda()) images = images.pin_memory();

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor input = images.to(run.device, /*non_blocking=*/true);
    if (run.fixed) input = input.to(torch::kFloat).div_(255);
    stem->forward(input).square().mean().backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kH2dFp32Input = {
    .rule = "h2d-fp32-input",
    .habit = "uploads images as floats",
    .fix = "upload bytes, cast on the device",
    .train = &TrainH2dFp32Input,
    .needs_gpu = true,
    .also = {{"h2d-blocking", "the kernels wait for the same upload"},
             {"cudnn-benchmark-off",
              "the search is off unless a program turns it on"}}};

}  // namespace gallery
