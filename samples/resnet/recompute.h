// Activation checkpointing: a part of the network keeps only its input and runs
// a second time when the backward pass reaches it.
// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

namespace resnet {

using Section = std::function<torch::Tensor(torch::Tensor)>;

// Runs `section`, which must use only parameters of `module` and give the same
// result when it runs again: random state is not restored. Norms below `module`
// count their batch only once. Autocast is the same in both runs. REQUIRES:
// gradients are recorded, and `x` requires a gradient.
torch::Tensor Recompute(std::shared_ptr<torch::nn::Module> module,
                        Section section, const torch::Tensor& x);

}  // namespace resnet
