#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::adapters_test {
namespace {

constexpr const char* kRule = "merged-adapter";
constexpr const char* kWeight = "float[1536,768]";

// A layer of 96 rows whose weight is the sum of a frozen weight and an adapter.
// Each op and each node takes 1 ms, except for the layer's node, which takes 2
// ms.
struct How {
  std::string rank = "4";
  bool adds = true;       // adds the adapter to the weight
  bool trains = false;    // the weight is trained, too
  std::string also = "";  // an op that reads the sum before the layer
  bool has_layer = true;
};

class Steps {
 public:
  explicit Steps(const How& how) {
    for (int step = 0; step < 4; ++step) Step(how);
  }
  Report Analyzed() const { return text_.Analyzed(); }

 private:
  void Op(const std::string& name, const std::string& inputs) {
    text_.Op(name, "(" + inputs + ")", {}, 1000,
             "sequence=" + std::to_string(sequence_++));
  }
  // Writes a node that runs `products` one after the other.
  void Node(int number, const std::vector<std::string>& products) {
    const std::string fields =
        "kind=backward sequence=" + std::to_string(number);
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    for (const std::string& inputs : products) {
      text_.Op("aten::mm", "(" + inputs + ")", {}, 1000);
    }
    text_.End("XBackward0", "", 0, fields);
    text_.End("autograd::engine::evaluate_function: XBackward0", "", 0, fields);
  }
  void Keep() {
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    text_.End("torch::autograd::AccumulateGrad",
              "(" + std::string(kWeight) + ")");
    text_.End(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "", 0, "kind=backward");
  }
  void Step(const How& how) {
    const int first = sequence_;
    const std::string weight = kWeight;
    Op("aten::matmul",
       "float[1536," + how.rank + "],float[" + how.rank + ",768]");
    Op("aten::mul", weight);
    Op("aten::add", how.adds ? weight + "," + weight : weight);
    if (!how.also.empty()) Op(how.also, weight);
    if (how.has_layer) {
      Op("aten::linear", "float[16,6,768]," + weight + ",float[1536]");
    }
    for (int number = sequence_; number-- > first;) {
      const bool layer = how.has_layer && number == sequence_ - 1;
      Node(number,
           layer ? std::vector<std::string>{"float[96,1536]," + weight,
                                            "float[1536,96],float[96,768]"}
                 : std::vector<std::string>{"float[8,8],float[8,8]"});
      if (how.trains && number == first + 2) Keep();
    }
    text_.Begin();
    text_.Op("aten::_fused_adamw_", "", {}, 4000);
    text_.EndRange("Optimizer.step#AdamW.step", "optimizer");
    text_.EndStep();
  }

  ComputeText text_;
  int sequence_ = 0;
};

Report Of(const How& how) { return Steps(how).Analyzed(); }

TEST(AdaptersTest, FindsAnAdapterMergedIntoItsWeight) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Saves the product, the scale and the sum with their nodes, and the gradient
  // of the weight. Three thin products replace that gradient; each takes 4 *
  // 2304 / 1179648 of it.
  EXPECT_NEAR(finding->gain.expected_ms, 6 + 1 - 3 * 4 * 2304.0 / 1179648,
              0.05);
  EXPECT_NE(finding->evidence.find("of rank 4"), std::string::npos)
      << finding->evidence;
}

TEST(AdaptersTest, StaysSilentIfOtherCodeNeedsTheSum) {
  EXPECT_TRUE(IsClean(Of({.also = "aten::linalg_svd"}), kRule));
  EXPECT_TRUE(IsClean(Of({.has_layer = false}), kRule));
}

// In these cases the layer is factorised, or its gradient is needed anyway.
TEST(AdaptersTest, NeedsAFrozenWeight) {
  EXPECT_TRUE(IsClean(Of({.adds = false}), kRule));
  EXPECT_TRUE(IsClean(Of({.trains = true}), kRule));
}

TEST(AdaptersTest, NeedsThinMatrices) {
  EXPECT_FALSE(IsClean(Of({.rank = "128"}), kRule));
  EXPECT_TRUE(IsClean(Of({.rank = "256"}), kRule));
}

// Steps of a layer [96, 64] with an adapter of rank `rank` beside it. Each op
// takes 1 ms, other work 4 ms.
Report Beside(const std::string& rank, bool trains = false, bool adds = true,
              const std::string& between = "") {
  ComputeText text;
  const auto op = [&](const std::string& name, const std::string& inputs,
                      double us = 1000) {
    text.Op(name, "(" + inputs + ")", {}, us);
  };
  for (int step = 0; step < 4; ++step) {
    op("aten::linear", "float[8,32,64],float[96,64],float[96]");
    op("aten::linear", "float[8,32,64],float[" + rank + ",64]");
    if (!between.empty()) op(between, "float[8,32," + rank + "]");
    op("aten::linear", "float[8,32," + rank + "],float[96," + rank + "]");
    op("aten::mul", "float[8,32,96],double[]");
    if (adds) op("aten::add", "float[8,32,96],float[8,32,96]");
    op("aten::softmax", "float[8,32,96]", 4000);
    if (trains) {
      text.Op("aten::mm", "", {}, 100, "kind=backward sequence=1");
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnmergedAdapterTest, IsAtMostWhatRunsBesideTheLayer) {
  const Report report = Beside("4");
  const Finding* finding = Find(report, "unmerged-adapter");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.01);
  EXPECT_NE(finding->evidence.find("two products of rank 4 and a sum, 1 time"),
            std::string::npos)
      << finding->evidence;
}

TEST(UnmergedAdapterTest, NeedsThinProductsASumAndAModelThatIsNotTrained) {
  EXPECT_TRUE(IsClean(Beside("32"), "unmerged-adapter"));
  EXPECT_TRUE(IsClean(Beside("4", true), "unmerged-adapter"));
  EXPECT_TRUE(IsClean(Beside("4", false, false), "unmerged-adapter"));
  // A bottleneck with an activation is no product that a weight could hold.
  EXPECT_TRUE(
      IsClean(Beside("4", false, true, "aten::relu"), "unmerged-adapter"));
  EXPECT_FALSE(
      IsClean(Beside("4", false, true, "aten::dropout"), "unmerged-adapter"));
}

TEST(UnmergedAdapterTest, CountsAllAdaptersOfALayer) {
  ComputeText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::linear", "(float[8,32,64],float[96,64],float[96])", {},
            4000);
    for (int adapter = 0; adapter < 2; ++adapter) {
      text.Op("aten::linear", "(float[8,32,64],float[4,64])", {}, 1000);
      text.Op("aten::linear", "(float[8,32,4],float[96,4])", {}, 1000);
      text.Op("aten::mul", "(float[8,32,96],double[])", {}, 1000);
      text.Op("aten::add", "(float[8,32,96],float[8,32,96])", {}, 1000);
    }
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "unmerged-adapter");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 8, 0.01);
}

// Steps of ops on a CPU, by name and microseconds, recorded without sizes.
Report Unsized(const std::vector<std::pair<std::string, int64_t>>& ops) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    for (const auto& [name, us] : ops) text.Op(name, us);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnmergedAdapterTest, KnowsAdaptersWithoutSizes) {
  const std::pair<std::string, int64_t> layer = {"aten::linear", 4'000},
                                        thin = {"aten::linear", 900},
                                        scale = {"aten::mul", 500},
                                        sum = {"aten::add", 700};
  const Report two = Unsized({layer,
                              thin,
                              {"aten::view", 5},
                              thin,
                              scale,
                              sum,
                              thin,
                              thin,
                              scale,
                              sum});
  const Finding* finding = Find(two, "unmerged-adapter");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NEAR(finding->gain.expected_ms, 6.005, 0.01);
  // Queries, keys and values of fewer heads, and a rotation.
  EXPECT_TRUE(IsClean(Unsized({layer,
                               thin,
                               thin,
                               scale,
                               {"aten::neg", 100},
                               {"aten::cat", 100},
                               scale,
                               sum}),
                      "unmerged-adapter"));
  // Layers with a bias, which make a factor and a term of a condition.
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::linear", 4'000);
    for (int i = 0; i < 2; ++i) {
      text.Nested("aten::linear", 900, "aten::addmm", 890);
    }
    text.Op("aten::mul", 500);
    text.Op("aten::add", 700);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), "unmerged-adapter"));
  // Three layers of one size.
  EXPECT_TRUE(
      IsClean(Unsized({layer, layer, layer, scale, sum}), "unmerged-adapter"));
  // A layer of a network with an activation.
  EXPECT_TRUE(
      IsClean(Unsized({layer, thin, {"aten::gelu", 100}, thin, scale, sum}),
              "unmerged-adapter"));
}

}  // namespace
}  // namespace stepscope::adapters_test
