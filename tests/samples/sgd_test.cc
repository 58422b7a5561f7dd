#include "sgd.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

namespace resnet::sgd_test {
namespace {

constexpr SgdKind kKinds[] = {SgdKind::kLoop, SgdKind::kForeach,
                              SgdKind::kFused};

// Returns parameters with a network's shapes, one of them NHWC. Each has a
// gradient that differs from step to step.
std::vector<torch::Tensor> MakeParameters() {
  torch::manual_seed(5);
  std::vector<torch::Tensor> parameters = {
      torch::randn({4, 3, 3, 3}), torch::randn({7}),
      torch::randn({4, 6, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast)};
  for (torch::Tensor& p : parameters) p.requires_grad_();
  return parameters;
}

void SetGradients(std::vector<torch::Tensor>& parameters, int step) {
  torch::manual_seed(100 + step);
  for (torch::Tensor& p : parameters) {
    p.mutable_grad() = torch::empty_like(p).normal_().detach();
  }
}

std::vector<torch::Tensor> Copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const torch::Tensor& t : tensors) copies.push_back(t.detach().clone());
  return copies;
}

// Computes the definition in double precision: v = 0.9 v + g, p = p - lr v.
std::vector<torch::Tensor> Expected(int steps, double lr) {
  std::vector<torch::Tensor> parameters = MakeParameters();
  std::vector<torch::Tensor> p, v;
  for (const torch::Tensor& x : parameters) {
    p.push_back(x.detach().to(torch::kDouble));
    v.push_back(torch::zeros_like(p.back()));
  }
  for (int step = 0; step < steps; ++step) {
    SetGradients(parameters, step);
    for (size_t i = 0; i < p.size(); ++i) {
      v[i] = 0.9 * v[i] + parameters[i].grad().to(torch::kDouble);
      p[i] = p[i] - lr * v[i];
    }
  }
  return p;
}

TEST(SgdTest, EveryKindFollowsTheDefinition) {
  for (SgdKind kind : kKinds) {
    std::vector<torch::Tensor> parameters = MakeParameters();
    Sgd sgd(parameters, kind, 0.1);
    for (int step = 0; step < 4; ++step) {
      SetGradients(parameters, step);
      sgd.Step();
    }
    std::vector<torch::Tensor> expected = Expected(4, 0.1);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters[i].to(torch::kDouble), expected[i],
                                  1e-5, 1e-6))
          << static_cast<int>(kind) << " " << i;
    }
  }
}

TEST(SgdTest, ASkippedStepChangesNothingAndLeavesNoTrace) {
  for (SgdKind kind : kKinds) {
    std::vector<torch::Tensor> parameters = MakeParameters();
    std::vector<torch::Tensor> before = Copies(parameters);
    Sgd sgd(parameters, kind, 0.1);
    SetGradients(parameters, 50);
    sgd.Step(torch::ones({1}));
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::equal(parameters[i], before[i]));
    }
    SetGradients(parameters, 0);
    sgd.Step(torch::zeros({1}));
    std::vector<torch::Tensor> expected = Expected(1, 0.1);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters[i].to(torch::kDouble), expected[i],
                                  1e-5, 1e-6))
          << static_cast<int>(kind) << " " << i;
    }
  }
}

TEST(SgdTest, ZeroGradDropsOrClears) {
  for (SgdKind kind : kKinds) {
    std::vector<torch::Tensor> parameters = MakeParameters();
    Sgd sgd(parameters, kind, 0.1);
    SetGradients(parameters, 0);
    sgd.ZeroGrad(/*set_to_none=*/false);
    for (const torch::Tensor& gradient : sgd.Gradients()) {
      ASSERT_TRUE(gradient.defined());
      EXPECT_FALSE(gradient.any().item<bool>());
    }
    sgd.ZeroGrad(/*set_to_none=*/true);
    for (const torch::Tensor& gradient : sgd.Gradients()) {
      EXPECT_FALSE(gradient.defined());
    }
  }
}

}  // namespace
}  // namespace resnet::sgd_test
