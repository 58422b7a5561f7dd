// Clipping of gradients by their common norm.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace resnet {

// Scales `gradients` in place so that their norm is at most `limit`, and does
// not wait for the device. Returns the norm they had, one float on the device.
// Same meaning as torch::nn::utils::clip_grad_norm_, which always waits.
torch::Tensor ClipOnDevice(const std::vector<torch::Tensor>& gradients,
                           double limit);

}  // namespace resnet
