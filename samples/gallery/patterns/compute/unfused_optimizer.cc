// unfused-optimizer: torch::optim updates one parameter after the other, with a
// dozen small ops each.
// Fix: LibTorch has no fused optimizer, but it has the op for one.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int64_t kExperts = 128, kWidth = 64;

// AdamW that updates all parameters in one op.
class FusedAdamW {
 public:
  explicit FusedAdamW(std::vector<torch::Tensor> parameters)
      : parameters_(std::move(parameters)) {
    for (const torch::Tensor& parameter : parameters_) {
      mean_.push_back(torch::zeros_like(parameter));
      square_.push_back(torch::zeros_like(parameter));
      steps_.push_back(torch::zeros({}));
    }
  }
  void Step() {
    torch::NoGradGuard guard;
    std::vector<torch::Tensor> gradients;
    for (torch::Tensor& parameter : parameters_) {
      gradients.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters_, gradients, mean_, square_, {}, steps_,
                      /*lr=*/1e-3, /*beta1=*/0.9, /*beta2=*/0.999,
                      /*weight_decay=*/1e-2, /*eps=*/1e-8, /*amsgrad=*/false,
                      /*maximize=*/false);
  }

 private:
  std::vector<torch::Tensor> parameters_, mean_, square_, steps_;
};

void TrainUnfusedOptimizer(const Run& run) {
  // Many small layers side by side, multiplied as one.
  std::vector<torch::Tensor> experts;
  for (int64_t i = 0; i < kExperts; ++i) {
    experts.push_back(torch::randn({kWidth, kWidth}).requires_grad_());
  }
  const torch::Tensor inputs = torch::randn({kExperts, 32, kWidth});
  torch::optim::AdamW adam(experts, 1e-3);
  FusedAdamW fused(experts);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::bmm(inputs, torch::stack(experts)).square().mean().backward();
    if (run.fixed) {
      fused.Step();
    } else {
      adam.step();
      adam.zero_grad();
    }
    profile.Step();
  }
}

}  // namespace

extern const Pattern kUnfusedOptimizer = {
    .rule = "unfused-optimizer",
    .habit = "torch::optim::AdamW over many small parameters",
    .fix = "at::_fused_adamw_",
    .train = &TrainUnfusedOptimizer,
    .active = 5,
    .also = {{"launch-bound",
              "the updates are two thousand ops of a few microseconds, and the "
              "gradients of 128 parameters a few hundred more",
              /*when_fixed=*/true}}};

}  // namespace gallery
