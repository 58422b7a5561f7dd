#include "clipping.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

namespace resnet::clipping_test {
namespace {

TEST(ClippingTest, AgreesWithLibTorchsClipping) {
  for (double size : {0.01, 1.0, 100.0}) {
    torch::manual_seed(2);
    std::vector<torch::Tensor> parameters, gradients;
    for (int64_t n : {3, 50, 8}) {
      torch::Tensor p = torch::zeros({n}).requires_grad_();
      p.mutable_grad() = torch::randn({n}) * size;
      gradients.push_back(p.grad().clone());
      parameters.push_back(p);
    }
    double norm = torch::nn::utils::clip_grad_norm_(parameters, 1.0);
    EXPECT_NEAR(ClipOnDevice(gradients, 1.0).item<double>(), norm, 1e-5 * norm);
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(
          torch::allclose(gradients[i], parameters[i].grad(), 1e-5, 1e-7));
    }
  }
}

TEST(ClippingTest, AtTheLimitNothingChanges) {
  std::vector<torch::Tensor> gradients = {torch::tensor({0.6f}),
                                          torch::tensor({0.8f})};
  ClipOnDevice(gradients, 1.0 + 1e-4);
  EXPECT_EQ(gradients[0].item<float>(), 0.6f);
  EXPECT_EQ(gradients[1].item<float>(), 0.8f);
}

TEST(ClippingTest, GradientsOfZeroStayZero) {
  std::vector<torch::Tensor> gradients = {torch::zeros({4})};
  EXPECT_EQ(ClipOnDevice(gradients, 1.0).item<float>(), 0);
  EXPECT_FALSE(gradients[0].any().item<bool>());
}

}  // namespace
}  // namespace resnet::clipping_test
