// Activation checkpointing: a part of the network keeps its input only, and
// runs a second time when the backward pass comes to it.
// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

namespace resnet {

using Section = std::function<torch::Tensor(torch::Tensor)>;

// Runs `section`, which must use parameters of `module` only and give the same
// when run again: nothing random is put back. Norms below `module` count their
// batch once. Autocast is in the second run what it was in the first.
// REQUIRES: gradients are recorded, and `x` needs one.
torch::Tensor Recompute(std::shared_ptr<torch::nn::Module> module,
                        Section section, const torch::Tensor& x);

}  // namespace resnet
