// Where the network trains, and how LibTorch is set up for it.
#pragma once

#include <absl/status/statusor.h>
#include <torch/torch.h>

#include "flags/options.h"

namespace resnet {

// The CPU, or the first GPU. The program is linked to LibTorch's CPU half only,
// so that it runs where there is no CUDA; the other half is loaded here.
// Errors: Unavailable (no libtorch_cuda, no driver, no GPU).
absl::StatusOr<torch::Device> OpenDevice(DeviceKind kind);

// Sets LibTorch's switches for the whole process: threads, cuDNN's search,
// TF32 and the search for NaN.
void Configure(const Options& options);

}  // namespace resnet
