// Fewer bits for the forward pass: autocast, and the loss scaling that float16
// needs to keep small gradients from becoming zero.
#pragma once

#include <absl/status/status.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

#include "flags/options.h"

namespace resnet {

// What --bf16 and --fp16 ask for; nothing if neither was given.
std::optional<torch::ScalarType> AutocastType(const Options& options);

// Whether this build of LibTorch trains a convolution in float16 there.
// Errors: Unavailable, with what LibTorch said.
absl::Status CheckHalfWorks(torch::Device device);

// Runs what follows under autocast to `type`, if there is one. For one thread;
// not to be nested.
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
// gradients after it. Where they overflowed, the step is to be skipped and the
// factor halves; after `kGrowthInterval` good steps it doubles. All of that
// stays on the device: the host never waits to learn which it was.
// Source: Micikevicius et al., "Mixed Precision Training", 2018, section 3.2;
// the numbers are torch.amp.GradScaler's.
class LossScaler {
 public:
  static constexpr double kFirstScale = 65536;
  static constexpr int kGrowthInterval = 2000;

  explicit LossScaler(torch::Device device);

  torch::Tensor Scale(const torch::Tensor& loss) const;
  // Divides the gradients in place. Returns one float: 1 if any of them was
  // infinite or no number, so that the step must be skipped, else 0.
  torch::Tensor Unscale(const std::vector<torch::Tensor>& gradients);
  // Adapts the factor to what the last Unscale() found.
  void Update();

  double scale() const { return scale_.item<double>(); }  // waits

 private:
  torch::Tensor scale_;       // one float
  torch::Tensor good_steps_;  // one int32
  torch::Tensor found_inf_;   // one float
};

}  // namespace resnet
