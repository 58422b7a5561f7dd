#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::adjacency_test {
namespace {

constexpr const char* kRule = "renormalised-adjacency";
constexpr const char* kSum = "inputs=(float[400,400]) aten::sum";
constexpr const char* kScale = "inputs=(float[400,400],float[400,1]) aten::div";

// Returns the ops of a layer: the matrix times features of `width`, then a
// linear layer.
std::vector<std::string> Layer(const std::string& width) {
  return {"inputs=(float[400,400],float[8,400," + width + "]) aten::matmul",
          "inputs=(float[8,400," + width + "],float[64," + width +
              "],float[64]) aten::linear"};
}

std::vector<std::string> Joined(
    const std::vector<std::vector<std::string>>& parts) {
  std::vector<std::string> all;
  for (const auto& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Steps of 20 ms, in which each of `ops` takes 1 ms.
Report Of(const std::vector<std::string>& ops) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    for (const std::string& op : ops) text.Op(op, 1'000);
    text.Op("aten::sort", 20'000 - 1'000 * static_cast<int64_t>(ops.size()));
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(AdjacencyTest, FindsAMatrixNormalisedInEachLayer) {
  const Report report =
      Of(Joined({{kSum, kScale}, Layer("12"), {kSum, kScale}, Layer("64")}));
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.01);
  EXPECT_NE(finding->evidence.find("A matrix of [400, 400] is prepared by the "
                                   "same ops (sum > div) 2 times per step"),
            std::string::npos)
      << finding->evidence;
}

TEST(AdjacencyTest, AllowsOneNormalisation) {
  EXPECT_TRUE(
      IsClean(Of(Joined({{kSum, kScale}, Layer("12"), Layer("64")})), kRule));
}

// One layer is called for several graphs of the same size.
TEST(AdjacencyTest, IgnoresDifferentGraphsOfOneSize) {
  EXPECT_TRUE(IsClean(
      Of(Joined({{kSum, kScale}, Layer("12"), {kSum, kScale}, Layer("12")})),
      kRule));
}

TEST(AdjacencyTest, NeedsTheSamePreparation) {
  EXPECT_TRUE(IsClean(
      Of(Joined({{kSum, kScale}, Layer("12"), {kSum}, Layer("64")})), kRule));
  // An op on another size or a random op ends the chain.
  for (const char* op : {"inputs=(float[400,64]) aten::relu",
                         "inputs=(float[400,400]) aten::bernoulli"}) {
    EXPECT_TRUE(IsClean(Of(Joined({{kSum, kScale, op},
                                   Layer("12"),
                                   {kSum, kScale, op},
                                   Layer("64")})),
                        kRule))
        << op;
  }
}

TEST(AdjacencyTest, IgnoresATrainedMatrix) {
  CpuText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    const int first = sequence;
    for (const char* width : {"12", "64"}) {
      text.Op("sequence=" + std::to_string(sequence++) +
                  " inputs=(float[400,400]) aten::softmax",
              1'000);
      for (const std::string& op : Layer(width)) text.Op(op, 1'000);
    }
    for (int number = sequence; number-- > first;) {
      text.Op("kind=backward sequence=" + std::to_string(number) +
                  " SoftmaxBackward0",
              1'000);
    }
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), kRule));
}

}  // namespace
}  // namespace stepscope::adjacency_test
