#include "sgd.h"

#include <optional>
#include <utility>

namespace resnet {
namespace {

constexpr double kMomentum = 0.9;

}  // namespace

Sgd::Sgd(std::vector<torch::Tensor> parameters, SgdKind kind, double lr)
    : parameters_(std::move(parameters)),
      kind_(kind),
      lr_(lr),
      loop_(parameters_, torch::optim::SGDOptions(lr).momentum(kMomentum)) {
  if (kind_ == SgdKind::kLoop) return;
  // Start from zero: the first step then leaves the gradient itself, like the
  // copy in the loop, and needs no special case. A skipped first step also
  // leaves nothing uninitialised.
  for (const torch::Tensor& p : parameters_) {
    momentum_.push_back(torch::zeros_like(p));
  }
}

std::vector<torch::Tensor> Sgd::Gradients() const {
  std::vector<torch::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const torch::Tensor& p : parameters_) gradients.push_back(p.grad());
  return gradients;
}

void Sgd::Step(const torch::Tensor& skip) {
  torch::NoGradGuard no_grad;
  if (kind_ == SgdKind::kFused) return StepFused(skip);
  if (skip.defined() && skip.item<float>() != 0) return;
  if (kind_ == SgdKind::kForeach) return StepForeach();
  loop_.step();
}

void Sgd::StepForeach() {
  at::_foreach_mul_(momentum_, kMomentum);
  at::_foreach_add_(momentum_, Gradients());
  at::_foreach_add_(parameters_, momentum_, -lr_);
}

void Sgd::StepFused(const torch::Tensor& skip) {
  std::optional<torch::Tensor> found_inf;
  if (skip.defined()) found_inf = skip;
  at::_fused_sgd_(parameters_, Gradients(), momentum_, /*weight_decay=*/0,
                  kMomentum, lr_, /*dampening=*/0, /*nesterov=*/false,
                  /*maximize=*/false, /*is_first_step=*/false,
                  /*grad_scale=*/{}, found_inf);
}

// Works for all kinds, because `loop_` has the same parameters.
void Sgd::ZeroGrad(bool set_to_none) { loop_.zero_grad(set_to_none); }

}  // namespace resnet
