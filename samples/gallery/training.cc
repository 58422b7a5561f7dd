#include "training.h"

#include <stepscope/range.h>

namespace gallery {

using stepscope::Phase;
using stepscope::PhaseRange;

Batch MakeBatch(int64_t size, int64_t wide, int64_t out, torch::Device device) {
  return {torch::randn({size, wide}, device),
          torch::randn({size, out}, device)};
}

torch::nn::Sequential Mlp(const std::vector<int64_t>& widths,
                          torch::Device device) {
  torch::nn::Sequential network;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) network->push_back(torch::nn::ReLU());
    network->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
  }
  network->to(device);
  return network;
}

torch::Tensor TrainStep(torch::nn::Sequential& network,
                        torch::optim::Optimizer& optimizer,
                        const Batch& batch) {
  torch::Tensor loss;
  {
    PhaseRange phase(Phase::kForward);
    loss = torch::mse_loss(network->forward(batch.inputs), batch.targets);
  }
  {
    PhaseRange phase(Phase::kBackward);
    loss.backward();
  }
  PhaseRange phase(Phase::kOptimizer);
  optimizer.step();
  optimizer.zero_grad();
  // Otherwise the caller would hold the graph of the step.
  return loss.detach();
}

}  // namespace gallery
