#include "precision.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

namespace resnet::precision_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(AutocastTest, EndsWithItsScope) {
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  {
    Autocast off(at::kCPU, std::nullopt);
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    Autocast on(at::kCPU, torch::kBFloat16);
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(AutocastTest, ProductsAreOfTheTypeAskedFor) {
  torch::Tensor a = torch::ones({4, 4});
  for (torch::ScalarType type : {torch::kBFloat16, torch::kFloat16}) {
    Autocast on(at::kCPU, type);
    EXPECT_EQ(torch::mm(a, a).scalar_type(), type);
  }
  EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kFloat);
}

TEST(LossScalerTest, WhatIsScaledIsDividedAgain) {
  LossScaler scaler(torch::kCPU);
  torch::Tensor weight = torch::tensor({2.0f, -3.0f}).requires_grad_();
  scaler.Scale((weight * weight).sum()).backward();
  EXPECT_EQ(weight.grad()[0].item<float>(), 4 * LossScaler::kFirstScale);
  torch::Tensor skip = scaler.Unscale({weight.grad()});
  EXPECT_EQ(skip.item<float>(), 0);
  EXPECT_EQ(weight.grad()[0].item<float>(), 4);
  EXPECT_EQ(weight.grad()[1].item<float>(), -6);
}

// float16 rounds this gradient to zero unless the loss is scaled.
TEST(LossScalerTest, SmallGradientsSurvive) {
  constexpr double kTiny = 1e-8;
  auto gradient = [&](bool scaled) {
    LossScaler scaler(torch::kCPU);
    torch::Tensor weight = torch::ones({1}).requires_grad_();
    torch::Tensor loss = weight.to(torch::kFloat16).to(torch::kFloat) * kTiny;
    (scaled ? scaler.Scale(loss.sum()) : loss.sum()).backward();
    if (scaled) scaler.Unscale({weight.grad()});
    return weight.grad().item<double>();
  };
  EXPECT_EQ(gradient(false), 0);
  EXPECT_NEAR(gradient(true), kTiny, 1e-10);
}

TEST(LossScalerTest, OverflowSkipsAStepAndHalvesTheFactorUntilItIsOver) {
  for (float bad : {kInfinity, -kInfinity, kNan}) {
    LossScaler scaler(torch::kCPU);
    std::vector<torch::Tensor> gradients = {torch::ones({3}),
                                            torch::tensor({1.0f, bad})};
    for (int i = 1; i <= 3; ++i) {
      EXPECT_EQ(scaler.Unscale(gradients).item<float>(), 1);
      scaler.Update();
      EXPECT_EQ(scaler.scale(), LossScaler::kFirstScale / (1 << i));
    }
    EXPECT_EQ(scaler.Unscale({torch::ones({3})}).item<float>(), 0);
    scaler.Update();
    EXPECT_EQ(scaler.scale(), LossScaler::kFirstScale / 8);
  }
}

TEST(LossScalerTest, ItGrowsAfterEnoughGoodStepsInARow) {
  LossScaler scaler(torch::kCPU);
  auto step = [&](float gradient) {
    scaler.Unscale({torch::full({1}, gradient)});
    scaler.Update();
  };
  for (int i = 0; i < LossScaler::kGrowthInterval - 1; ++i) step(1);
  EXPECT_EQ(scaler.scale(), LossScaler::kFirstScale);
  step(1);
  EXPECT_EQ(scaler.scale(), 2 * LossScaler::kFirstScale);
  for (int i = 0; i < LossScaler::kGrowthInterval - 1; ++i) step(1);
  step(kInfinity);
  step(1);
  EXPECT_EQ(scaler.scale(), LossScaler::kFirstScale);
}

TEST(HalfTest, ACpuEitherTrainsInItOrSaysWhyNot) {
  absl::Status status = CheckHalfWorks(torch::kCPU);
  if (status.ok()) return;
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_NE(std::string(status.message()).find("use --bf16"),
            std::string::npos);
}

}  // namespace
}  // namespace resnet::precision_test
