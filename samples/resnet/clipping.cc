#include "clipping.h"

namespace resnet {
namespace {

// Keeps gradients of zero from being divided by zero.
constexpr double kSmall = 1e-6;

}  // namespace

torch::Tensor ClipOnDevice(const std::vector<torch::Tensor>& gradients,
                           double limit) {
  torch::NoGradGuard no_grad;
  torch::Tensor norm = torch::stack(at::_foreach_norm(gradients, 2)).norm();
  torch::Tensor factor = (limit / (norm + kSmall)).clamp_max(1);
  at::_foreach_mul_(gradients, factor);
  return norm;
}

}  // namespace resnet
