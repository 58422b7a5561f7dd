// Clips gradients by their common norm.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace resnet {

// Scales `gradients` in place so that their norm is at most `limit`, without
// waiting for the device. Returns their previous norm, one float on the device.
// The result is that of torch::nn::utils::clip_grad_norm_, which always waits.
torch::Tensor ClipOnDevice(const std::vector<torch::Tensor>& gradients,
                           double limit);

}  // namespace resnet
