#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::propagation_test {
namespace {

constexpr char kRule[] = "constant-propagation";

// Steps of a graph network on 1000 nodes: rows of neighbours summed up twice,
// 3 ms each, then a layer with a weight.
struct Graph {
  bool trained = false;    // a gradient goes through the sums
  bool sampled = false;    // other edges in each step
  bool validates = false;  // the sums are only those of a pass behind training
  std::string before = "aten::select";
};

Report Of(const Graph& graph) {
  CpuText text;
  for (int step = 0; step < 5; ++step) {
    const std::string edges =
        std::to_string(graph.sampled ? 8'000 + step : 8'000);
    const auto linked = [&](int64_t number) {
      return "sequence=" + std::to_string(3 * step + number) + " ";
    };
    text.Op(graph.before, 1'000);
    const auto layer = [&] {
      text.Op(linked(2) + "inputs=(float[1000,16],float[64,16]) aten::linear",
              2'000);
      text.Op("kind=backward " + linked(2) + "AddmmBackward0", 3'000);
    };
    if (graph.validates) layer();
    for (int hop = 0; hop < 2; ++hop) {
      text.Op((graph.trained ? linked(hop) : "") +
                  "inputs=(float[1000,16],Scalar=\"-2\",long int[" + edges +
                  "]) aten::index_select",
              1'000);
      text.Op("aten::new_zeros", 100);
      text.Op("inputs=(float[1000,16],Scalar=\"-2\",long int[" + edges +
                  ",16],float[" + edges + ",16]) aten::scatter_add_",
              1'900);
    }
    if (!graph.validates) layer();
    for (int hop = 0; hop < 2 && graph.trained; ++hop) {
      text.Op("kind=backward " + linked(hop) + "IndexSelectBackward0", 1'000);
    }
    text.Op("kind=backward torch::autograd::AccumulateGrad", 20);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(ConstantPropagationTest, CountsAllThatNeedsNoWeight) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1 + 2 * 3, 0.01);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("over 8000 edges, 2 times per step"),
            std::string::npos)
      << finding->evidence;
}

TEST(ConstantPropagationTest, StaysSilentIfSumsDifferFromStepToStep) {
  EXPECT_TRUE(IsClean(Of({.sampled = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.before = "aten::dropout"}), kRule));
  EXPECT_TRUE(IsClean(Of({.before = "aten::rand_like"}), kRule));
  EXPECT_TRUE(IsClean(Of({.trained = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.validates = true}), kRule));
}

}  // namespace
}  // namespace stepscope::propagation_test
