#include "analysis/rules/rule_testing.h"
#include "support/engine_text.h"

namespace stepscope::weights_test {
namespace {

constexpr const char* kRule = "recomputed-weights";

struct Loop {
  int uses = 10;
  std::string op = "aten::_weight_norm_interface";
  std::string inputs = "(float[64,64],float[64,1],int)";
  bool one_parameter = true;  // else each use has its own parameter
  double us = 50;
  bool estimates = false;  // a product estimates the norm before each use
};

// A loop that multiplies by a weight. The weight is computed again for each
// use.
Report Of(const Loop& how) {
  EngineText program;
  int next = 0;
  for (int step = 0; step < 4; ++step) {
    next += 1000;
    for (int i = 0; i < how.uses; ++i) {
      if (how.estimates) {
        program.Op("aten::mv", "(float[64,64],float[64])", 20, next + 3 * i);
      }
      program.Op(how.op, how.inputs, how.us, next + 3 * i + 1);
      program.Op("aten::linear", "(float[8,64],float[64,64])", 100,
                 next + 3 * i + 2);
    }
    for (int i = how.uses; i-- > 0;) {
      program.Node(next + 3 * i + 2, 200);
      const bool sums = how.one_parameter && i + 1 < how.uses;
      program.Node(next + 3 * i + 1, how.us, sums ? "float[64,64]" : "");
      if (how.estimates) program.Node(next + 3 * i, 20, "float[64,64]");
      if (!how.one_parameter || i == 0) program.Keep("float[64,64]");
    }
    program.Update();
    program.EndStep();
  }
  return program.Analyzed();
}

TEST(RecomputedWeightsTest, AdvisesToComputeEachWeightOnce) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Nine runs are saved, forward and backward, each with a sum of 20 us.
  EXPECT_NEAR(finding->gain.expected_ms, 9 * (0.05 + 0.051 + 0.02), 0.1);
  EXPECT_NE(finding->evidence.find("run 10 times per step for 1 parameter"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("parametrize.cached()"),
            std::string::npos);
}

TEST(RecomputedWeightsTest, AnyOpOfOneParameterCounts) {
  EXPECT_FALSE(IsClean(
      Of({.op = "aten::_to_copy", .inputs = "(float[64,64],int)"}), kRule));
}

TEST(RecomputedWeightsTest, IgnoresLayersWithTheirOwnWeights) {
  EXPECT_TRUE(IsClean(Of({.one_parameter = false}), kRule));
  EXPECT_TRUE(IsClean(Of({.uses = 1}), kRule));
}

TEST(RecomputedWeightsTest, IgnoresOpsThatReadActivations) {
  EXPECT_TRUE(IsClean(
      Of({.op = "aten::mul", .inputs = "(float[64,64],float[8,64])"}), kRule));
  // A view costs nothing, and each product has its own.
  EXPECT_TRUE(
      IsClean(Of({.op = "aten::t", .inputs = "(float[64,64])"}), kRule));
}

TEST(RecomputedWeightsTest, AllowsTwoEstimatesOfANorm) {
  const auto uses = [](int count) {
    return Of(Loop{.uses = count,
                   .op = "aten::div",
                   .inputs = "(float[64,64],float[])",
                   .us = 300,
                   .estimates = true});
  };
  EXPECT_TRUE(IsClean(uses(2), kRule));
  EXPECT_FALSE(IsClean(uses(3), kRule));
}

}  // namespace
}  // namespace stepscope::weights_test
