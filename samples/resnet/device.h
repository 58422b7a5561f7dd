// The device that the network trains on, and LibTorch's settings for it.
#pragma once

#include <absl/status/statusor.h>
#include <torch/torch.h>

#include "flags/options.h"

namespace resnet {

// Returns the CPU or the first GPU. The program is linked only to LibTorch's
// CPU half, so that it runs without CUDA. The other half is loaded here.
// Errors: Unavailable (no libtorch_cuda, no driver, no GPU).
absl::StatusOr<torch::Device> OpenDevice(DeviceKind kind);

// Sets LibTorch's switches for the whole process: threads, cuDNN's search for
// algorithms, TF32 and the search for NaN.
void Configure(const Options& options);

}  // namespace resnet
