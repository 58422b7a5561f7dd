// Things that the patterns share: small networks, artificial batches, and a
// training step without any bad habit.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace gallery {

struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
};

// Makes normally distributed numbers: inputs [size, wide], targets [size, out].
Batch MakeBatch(int64_t size, int64_t wide, int64_t out, torch::Device device);

// Makes linear layers of these widths with ReLU between them.
torch::nn::Sequential Mlp(const std::vector<int64_t>& widths,
                          torch::Device device = torch::kCPU);

// Runs forward, mean squared error, backward and update, each in its own phase.
// Returns the loss, still on the device.
torch::Tensor TrainStep(torch::nn::Sequential& network,
                        torch::optim::Optimizer& optimizer, const Batch& batch);

}  // namespace gallery
