#include "clipping.h"

namespace resnet {
namespace {

// Prevents a division by zero if all gradients are zero.
constexpr double kSmall = 1e-6;

}  // namespace

torch::Tensor ClipOnDevice(const std::vector<torch::Tensor>& gradients,
                           double limit) {
  torch::NoGradGuard no_grad;
  // The norm of all gradients is the norm of their norms.
  torch::Tensor norm = torch::stack(at::_foreach_norm(gradients, 2)).norm();
  // Always multiply, by 1 if nothing has to be clipped, because a decision
  // would need the norm on the host.
  torch::Tensor factor = (limit / (norm + kSmall)).clamp_max(1);
  at::_foreach_mul_(gradients, factor);
  return norm;
}

}  // namespace resnet
