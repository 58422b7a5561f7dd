// What the patterns have in common: small networks, made-up batches, and a
// training step without any bad habit.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace gallery {

struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
};

// Normal numbers: inputs [size, wide], targets [size, out].
Batch MakeBatch(int64_t size, int64_t wide, int64_t out, torch::Device device);

// Linear layers of these widths with ReLU between them.
torch::nn::Sequential Mlp(const std::vector<int64_t>& widths,
                          torch::Device device = torch::kCPU);

// Forward, mean squared error, backward and update, each in its phase. Gives
// the loss, still on the device.
torch::Tensor TrainStep(torch::nn::Sequential& network,
                        torch::optim::Optimizer& optimizer, const Batch& batch);

}  // namespace gallery
