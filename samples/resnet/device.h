// Where the network trains, and how LibTorch is set up for it.
#pragma once

#include <absl/status/statusor.h>
#include <torch/torch.h>

#include "options.h"

namespace resnet {

// The CPU, or the first GPU. The program is linked to LibTorch's CPU half only,
// so that it runs where there is no CUDA; the other half is loaded here.
// Errors: Unavailable (no libtorch_cuda, no driver, no GPU).
absl::StatusOr<torch::Device> OpenDevice(DeviceKind kind);

// Runs what follows under autocast to bfloat16, if `on`. For one thread; not
// to be nested.
class Autocast {
 public:
  Autocast(torch::DeviceType device, bool on);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool on_;
};

}  // namespace resnet
