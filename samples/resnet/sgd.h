// Sgd: stochastic gradient descent with momentum 0.9, in three variants that
// give the same weights but need different numbers of operators. For one
// thread.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "flags/options.h"

namespace resnet {

class Sgd {
 public:
  // The momentum gets the memory format that the parameters have at this time.
  Sgd(std::vector<torch::Tensor> parameters, SgdKind kind, double lr);

  // Updates every parameter. REQUIRES: all have gradients. `skip`, if defined,
  // is one float; if it is not 0, nothing changes. Only the fused variant
  // leaves that decision to the device; the others wait.
  void Step(const torch::Tensor& skip = {});
  void ZeroGrad(bool set_to_none);

  std::vector<torch::Tensor> Gradients() const;

 private:
  void StepForeach();
  void StepFused(const torch::Tensor& skip);

  std::vector<torch::Tensor> parameters_;
  SgdKind kind_;
  double lr_;
  torch::optim::SGD loop_;
  std::vector<torch::Tensor> momentum_;  // empty for kLoop
};

}  // namespace resnet
