// Fewer bits for the forward pass: autocast, and the loss scaling that float16
// needs so that small gradients do not become zero.
#pragma once

#include <absl/status/status.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

#include "flags/options.h"

namespace resnet {

// Returns the type for --bf16 or --fp16; nothing if neither was given.
std::optional<torch::ScalarType> AutocastType(const Options& options);

// OK if this build of LibTorch can train a convolution in float16 on the
// device. Errors: Unavailable, with LibTorch's message.
absl::Status CheckHalfWorks(torch::Device device);

// While this object lives, runs under autocast to `type`, if there is one. For
// one thread; must not be nested.
class Autocast {
 public:
  Autocast(torch::DeviceType device, std::optional<torch::ScalarType> type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool on_;
};

// LossScaler multiplies the loss before the backward pass and divides the
// gradients after it. If gradients overflowed, the step must be skipped, and
// the factor is halved. After `kGrowthInterval` good steps the factor is
// doubled. All of this happens on the device, so the host never waits to learn
// whether there was an overflow. Source: Micikevicius et al., "Mixed Precision
// Training", 2018, section 3.2; the numbers are torch.amp.GradScaler's.
class LossScaler {
 public:
  static constexpr double kFirstScale = 65536;
  static constexpr int kGrowthInterval = 2000;

  explicit LossScaler(torch::Device device);

  torch::Tensor Scale(const torch::Tensor& loss) const;
  // Divides the gradients in place. Returns one float: 1 if a gradient was
  // infinite or NaN, so that the step must be skipped, else 0.
  torch::Tensor Unscale(const std::vector<torch::Tensor>& gradients);
  // Adapts the factor to the result of the last Unscale().
  void Update();

  double scale() const { return scale_.item<double>(); }  // waits

 private:
  torch::Tensor scale_;       // one float
  torch::Tensor good_steps_;  // one int32
  torch::Tensor found_inf_;   // one float
};

}  // namespace resnet
