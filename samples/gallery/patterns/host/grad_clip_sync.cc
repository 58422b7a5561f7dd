// grad-clip-sync: LibTorch's clip_grad_norm_ reads the norm back in every step,
// so the host waits for the whole backward pass.
// Fix: compute the factor on the device and multiply the gradients by it.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr double kMostNorm = 1;

void ClipOnDevice(const std::vector<torch::Tensor>& parameters) {
  torch::NoGradGuard guard;
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad());
  }
  torch::Tensor norm = torch::stack(at::_foreach_norm(gradients)).norm();
  at::_foreach_mul_(gradients, (kMostNorm / (norm + 1e-6)).clamp_max(1));
}

void TrainGradClipSync(const Run& run) {
  std::vector<int64_t> widths(30, 256);
  torch::nn::Sequential network = Mlp(widths, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(2048, 256, 256, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::mse_loss(network->forward(batch.inputs), batch.targets).backward();
    if (run.fixed) {
      ClipOnDevice(network->parameters());
    } else {
      torch::nn::utils::clip_grad_norm_(network->parameters(), kMostNorm);
    }
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kGradClipSync = {
    .rule = "grad-clip-sync",
    .habit = "clips gradients by a norm it reads back",
    .fix = "at::_foreach_norm and at::_foreach_mul_",
    .train = &TrainGradClipSync,
    .needs_gpu = true,
    .also = {{"launch-bound", "small kernels", /*when_fixed=*/true},
             {"unfused-optimizer", "torch::optim::SGD, over 58 parameters",
              /*when_fixed=*/true}}};

}  // namespace gallery
