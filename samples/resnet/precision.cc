#include "precision.h"

#include <ATen/autocast_mode.h>

#include <string>

namespace resnet {
namespace {

// The values of torch.amp.GradScaler.
constexpr double kGrowth = 2.0;
constexpr double kBackoff = 0.5;

}  // namespace

std::optional<torch::ScalarType> AutocastType(const Options& options) {
  if (options.fp16) return torch::kFloat16;
  if (options.bf16) return torch::kBFloat16;
  return std::nullopt;
}

absl::Status CheckHalfWorks(torch::Device device) {
  try {
    auto type = torch::TensorOptions(device).dtype(torch::kFloat16);
    torch::Tensor images = torch::ones({1, 2, 4, 4}, type);
    torch::Tensor weights = torch::ones({2, 2, 3, 3}, type).requires_grad_();
    torch::conv2d(images, weights).sum().backward();
    return absl::OkStatus();
  } catch (const c10::Error& error) {
    return absl::UnavailableError(
        std::string("--fp16 does not work here: LibTorch cannot train a "
                    "convolution in float16 on this device (") +
        error.what_without_backtrace() + "); use --bf16");
  }
}

Autocast::Autocast(torch::DeviceType device,
                   std::optional<torch::ScalarType> type)
    : device_(device), on_(type.has_value()) {
  if (!on_) return;
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::set_autocast_enabled(device_, true);
}

Autocast::~Autocast() {
  if (!on_) return;
  at::autocast::set_autocast_enabled(device_, false);
  // The cache has copies of the weights, which the update is about to change.
  at::autocast::clear_cache();
}

LossScaler::LossScaler(torch::Device device)
    : scale_(torch::full({1}, kFirstScale, device)),
      good_steps_(
          torch::zeros({1}, torch::TensorOptions(device).dtype(torch::kInt32))),
      found_inf_(torch::zeros({1}, device)) {}

torch::Tensor LossScaler::Scale(const torch::Tensor& loss) const {
  return loss * scale_.squeeze();
}

torch::Tensor LossScaler::Unscale(const std::vector<torch::Tensor>& gradients) {
  torch::NoGradGuard no_grad;
  found_inf_.zero_();
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf_,
                                                 scale_.reciprocal());
  return found_inf_;
}

void LossScaler::Update() {
  torch::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, good_steps_, found_inf_, kGrowth, kBackoff,
                         kGrowthInterval);
}

}  // namespace resnet
