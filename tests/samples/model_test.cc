#include "model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace resnet::model_test {
namespace {

// Returns one line per entry with name and sizes. The files in tests/data hold
// state_dict() and named_modules() of torchvision 0.26.0.
std::string StateOf(ResNet& model) {
  std::ostringstream out;
  auto print = [&](const auto& tensors) {
    for (const auto& item : tensors) {
      out << item.key();
      for (int64_t size : item.value().sizes()) out << ' ' << size;
      out << '\n';
    }
  };
  print(model->named_parameters());
  print(model->named_buffers());
  return out.str();
}

int64_t CountParameters(ResNet& model) {
  int64_t count = 0;
  for (const torch::Tensor& p : model->parameters()) count += p.numel();
  return count;
}

std::vector<std::string> SortedLines(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

class ResNetTest : public ::testing::TestWithParam<int> {};

TEST_P(ResNetTest, HasTorchvisionsNamesAndSizes) {
  ResNet model(GetParam(), 1000);
  std::ifstream expected(std::string(STEPSCOPE_TEST_DATA) + "/resnet" +
                         std::to_string(GetParam()) + "_state.txt");
  ASSERT_TRUE(expected.is_open());
  std::istringstream state(StateOf(model));
  EXPECT_THAT(SortedLines(state),
              ::testing::ContainerEq(SortedLines(expected)));
}

TEST_P(ResNetTest, HasTorchvisionsModules) {
  ResNet model(GetParam(), 1000);
  std::ifstream expected(std::string(STEPSCOPE_TEST_DATA) + "/resnet" +
                         std::to_string(GetParam()) + "_modules.txt");
  ASSERT_TRUE(expected.is_open());
  std::ostringstream names;
  for (const auto& item : model->named_modules("", /*include_self=*/false)) {
    names << item.key() << '\n';
  }
  std::istringstream modules(names.str());
  EXPECT_THAT(SortedLines(modules),
              ::testing::ContainerEq(SortedLines(expected)));
}

TEST_P(ResNetTest, HasTorchvisionsNumberOfParameters) {
  ResNet model(GetParam(), 1000);
  EXPECT_EQ(CountParameters(model), GetParam() == 18 ? 11'689'512 : 25'557'032);
}

TEST_P(ResNetTest, GivesOneScorePerClass) {
  torch::NoGradGuard no_grad;
  ResNet model(GetParam(), 10);
  model->eval();
  for (int64_t side : {16, 32, 33, 64}) {
    EXPECT_EQ(model->forward(torch::rand({2, 3, side, side})).sizes(),
              (std::vector<int64_t>{2, 10}))
        << side;
  }
}

TEST_P(ResNetTest, StartsAsTorchvisionStarts) {
  torch::manual_seed(1);
  ResNet model(GetParam(), 1000);
  for (const auto& item : model->named_parameters()) {
    const torch::Tensor& p = item.value();
    if (p.dim() == 4) {
      // He et al. 2015: the variance that preserves the size of gradients
      // through a ReLU.
      double expected = std::sqrt(
          2.0 / static_cast<double>(p.size(0) * p.size(2) * p.size(3)));
      EXPECT_NEAR(p.std().item<double>(), expected, 0.05 * expected)
          << item.key();
      EXPECT_NEAR(p.mean().item<double>(), 0, 0.05 * expected) << item.key();
    } else if (item.key().find("bn") != std::string::npos) {
      bool weight = item.key().ends_with("weight");
      EXPECT_TRUE(p.eq(weight ? 1 : 0).all().item<bool>()) << item.key();
    }
  }
}

TEST_P(ResNetTest, ChannelsLastChangesTheLayoutAndNotTheScores) {
  torch::NoGradGuard no_grad;
  ResNet model(GetParam(), 10);
  model->eval();
  torch::Tensor images = torch::rand({2, 3, 32, 32});
  torch::Tensor before = model->forward(images);
  MakeChannelsLast(*model);
  for (const auto& item : model->named_parameters()) {
    if (item.value().dim() != 4) continue;
    EXPECT_TRUE(item.value().is_contiguous(torch::MemoryFormat::ChannelsLast))
        << item.key();
  }
  torch::Tensor after =
      model->forward(images.contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::allclose(before, after, 1e-3, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(Depths, ResNetTest, ::testing::Values(18, 50));

// Checks the shortcut: if the block's own branch returns zero, the output is
// the rectified input.
TEST(BlockTest, TheShortcutCarriesTheInput) {
  torch::NoGradGuard no_grad;
  Block block(BlockImpl::Shape{false, 8, 8, 1}, "block");
  block->eval();
  for (auto& item : block->named_parameters()) {
    if (item.key() == "bn2.weight") item.value().zero_();
  }
  torch::Tensor x = torch::randn({2, 8, 5, 5});
  EXPECT_TRUE(torch::equal(block->forward(x.clone()), x.relu()));
}

}  // namespace
}  // namespace resnet::model_test
