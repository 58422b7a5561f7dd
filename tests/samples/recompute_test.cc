#include "recompute.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "precision.h"

namespace resnet::recompute_test {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Sequential;

struct Result {
  torch::Tensor y = {};
  torch::Tensor x_gradient = {};
  Sequential part;
  int runs = 0;
};

Result RunPart(bool recompute, std::optional<torch::ScalarType> autocast) {
  torch::manual_seed(4);
  Result result{.part = Sequential(Conv2d(Conv2dOptions(3, 4, 3).bias(false)),
                                   BatchNorm2d(4), torch::nn::ReLU())};
  torch::Tensor x = torch::randn({2, 3, 6, 6}).requires_grad_();
  Section section = [&](torch::Tensor in) {
    ++result.runs;
    return result.part->forward(in);
  };
  {
    Autocast scope(torch::kCPU, autocast);
    result.y =
        recompute ? Recompute(result.part.ptr(), section, x) : section(x);
  }
  result.y.to(torch::kFloat).pow(3).sum().backward();
  result.x_gradient = x.grad();
  return result;
}

TEST(RecomputeTest, ItGivesThePlainResultAndGradients) {
  for (std::optional<torch::ScalarType> autocast :
       {std::optional<torch::ScalarType>(),
        std::optional<torch::ScalarType>(torch::kBFloat16)}) {
    Result plain = RunPart(false, autocast);
    Result again = RunPart(true, autocast);
    EXPECT_EQ(plain.runs, 1);
    EXPECT_EQ(again.runs, 2);
    EXPECT_TRUE(torch::equal(plain.y, again.y));
    EXPECT_TRUE(torch::allclose(plain.x_gradient, again.x_gradient));
    auto expected = plain.part->named_parameters();
    for (const auto& item : again.part->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(
          torch::allclose(item.value().grad(), expected[item.key()].grad()))
          << item.key();
    }
  }
}

TEST(RecomputeTest, NormsCountABatchOnceAndAreWholeAfterwards) {
  Result plain = RunPart(false, std::nullopt);
  Result again = RunPart(true, std::nullopt);
  auto expected = plain.part->named_buffers();
  for (const auto& item : again.part->named_buffers()) {
    EXPECT_TRUE(torch::equal(item.value(), expected[item.key()])) << item.key();
  }
  const auto* norm = again.part->ptr(1)->as<torch::nn::BatchNorm2dImpl>();
  EXPECT_TRUE(norm->options.track_running_stats());
  EXPECT_EQ(norm->options.momentum(), 0.1);
}

TEST(RecomputeTest, NothingInsideIsKept) {
  for (bool recompute : {false, true}) {
    torch::nn::Conv2d conv(Conv2dOptions(3, 4, 3));
    c10::weak_intrusive_ptr<c10::StorageImpl> inside =
        torch::zeros({1}).storage().getWeakStorageImpl();
    Section section = [&](torch::Tensor in) {
      torch::Tensor out = conv->forward(in);
      inside = out.storage().getWeakStorageImpl();
      return out.sin();
    };
    torch::Tensor x = torch::randn({1, 3, 6, 6}).requires_grad_();
    torch::Tensor y =
        recompute ? Recompute(conv.ptr(), section, x) : section(x);
    EXPECT_EQ(inside.expired(), recompute);
  }
}

}  // namespace
}  // namespace resnet::recompute_test
