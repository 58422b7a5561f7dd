#include "analysis/rules/rule_testing.h"
#include "support/engine_text.h"

namespace stepscope::output_layers_test {
namespace {

constexpr const char* kRule = "output-layer-in-loop";
constexpr const char* kWeight = "float[3000,128]";

// A decoder with 12 positions, a batch of 16 and 3000 words. Per position, the
// cell takes 200 us, the layer 1 ms and the loss 120 us. Their nodes take as
// long.
struct How {
  int positions = 12;
  std::string reader = "aten::cross_entropy_loss";  // reads the results
  std::string results = "float[16,3000]";           // size that it reads
  bool own_weights = false;     // each with its own gradient
  bool inner_backward = false;  // runs after each position
};

Report Of(const How& how) {
  EngineText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    const auto backward = [&](int position) {
      const int number = sequence + 3 * position;
      text.Node(number + 2, 120);
      const bool added = !how.own_weights && position + 1 < how.positions;
      text.Node(number + 1, 1000, added ? kWeight : "");
      if (how.own_weights) text.Keep(kWeight, true);
      text.Node(number, 200);
    };
    for (int i = 0; i < how.positions; ++i) {
      const int number = sequence + 3 * i;
      text.Op("aten::gru_cell", "(float[16,256],float[16,128])", 200, number);
      text.Op("aten::linear",
              "(float[16,128]," + std::string(kWeight) + ",float[3000])", 1000,
              number + 1);
      text.Op(how.reader, "(" + how.results + ",long int[16])", 120,
              number + 2);
      if (how.inner_backward) backward(i);
    }
    if (!how.inner_backward) {
      for (int i = how.positions; i-- > 0;) backward(i);
    }
    if (!how.own_weights) text.Keep(kWeight);
    text.Update();
    sequence += 3 * how.positions;
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(OutputLayersTest, FindsALayerThatOnlyTheLossReads) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find(
                "aten::linear runs 12 times per step with the same weight, and "
                "no other op of the loop than aten::cross_entropy_loss reads"),
            std::string::npos)
      << finding->evidence;
  // Forward: at 50 GFLOP/s, the 16 * 128 * 3000 multiply-adds of a call take
  // 0.246 ms. Eleven sums of gradients take 20 us each. One call in place of
  // twelve saves 20 us for each of eleven losses and for both of their nodes.
  // The nodes contain no products.
  EXPECT_NEAR(finding->gain.expected_ms, 12 * 0.754 + 11 * 0.02 + 3 * 11 * 0.02,
              0.05);
}

TEST(OutputLayersTest, AllowsStoringResultsUntilTheLoopEnds) {
  EXPECT_FALSE(IsClean(
      Of({.reader = "aten::copy_", .results = "float[16,3000]"}), kRule));
  EXPECT_FALSE(IsClean(
      Of({.reader = "aten::view", .results = "float[16,3000]"}), kRule));
}

TEST(OutputLayersTest, IgnoresPositionsThatNeedTheWordBefore) {
  EXPECT_TRUE(IsClean(Of({.reader = "aten::argmax"}), kRule));
  EXPECT_TRUE(IsClean(
      Of({.reader = "aten::argmax", .results = "float[16,1,3000]"}), kRule));
}

TEST(OutputLayersTest, IgnoresLayersWithTheirOwnWeights) {
  EXPECT_TRUE(IsClean(Of({.own_weights = true}), kRule));
}

// This is gradient accumulation over batches.
TEST(OutputLayersTest, IgnoresPositionsWithTheirOwnBackwardPass) {
  EXPECT_TRUE(IsClean(Of({.inner_backward = true}), kRule));
}

TEST(OutputLayersTest, NeedsEightPositions) {
  EXPECT_FALSE(IsClean(Of({.positions = 8}), kRule));
  EXPECT_TRUE(IsClean(Of({.positions = 7}), kRule));
}

// A head of two layers. `behind` may read its results.
Report Head(const std::string& behind, const std::string& takes,
            const std::string& then = "") {
  constexpr const char* kHidden = "float[256,128]";
  constexpr const char* kOut = "float[64,256]";
  EngineText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 12; ++i) {
      const int number = sequence + 2 * i;
      text.Op("aten::gru_cell", "(float[16,200],float[16,128])", 200);
      text.Op("aten::linear", "(float[16,128]," + std::string(kHidden) + ")",
              300, number);
      text.Op("aten::relu", "(float[16,256])", 30);
      text.Op("aten::linear", "(float[16,256]," + std::string(kOut) + ")", 300,
              number + 1);
      if (!behind.empty()) text.Op(behind, takes, 30);
      if (!then.empty()) text.Op(then, takes, 30);
      text.Op("aten::mse_loss", "(float[16,64],float[16,64])", 50);
    }
    for (int i = 12; i-- > 0;) {
      text.Node(sequence + 2 * i + 1, 300, i < 11 ? kOut : "");
      text.Node(sequence + 2 * i, 300, i < 11 ? kHidden : "");
    }
    text.Keep(kOut);
    text.Keep(kHidden);
    text.Update();
    sequence += 24;
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(OutputLayersTest, IncludesLayersInFront) {
  const Report report = Head("", "");
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("aten::linear runs 24 times"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("layers in front of it"), std::string::npos);
}

TEST(OutputLayersTest, StaysSilentWhereAnotherOpMayReadTheResult) {
  EXPECT_TRUE(
      IsClean(Head("aten::chunk", "(float[16,64],Scalar=\"2\")"), kRule));
  // The program may read the copy in place of the result.
  EXPECT_TRUE(
      IsClean(Head("aten::clone", "(float[16,64])", "aten::argmax"), kRule));
  // An op that reads the result of the layer in front.
  const Report report = Head("aten::mul", "(float[16,256],float[16,256])");
  ASSERT_NE(Find(report, kRule), nullptr);
  EXPECT_NE(Find(report, kRule)->evidence.find("aten::linear runs 12 times"),
            std::string::npos);
}

}  // namespace
}  // namespace stepscope::output_layers_test
