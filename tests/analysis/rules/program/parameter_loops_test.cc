#include "analysis/rules/rule_testing.h"
#include "support/engine_text.h"

namespace stepscope::parameter_loops_test {
namespace {

constexpr const char* kPenalty = "parameter-penalty";
constexpr const char* kNorms = "norms-one-by-one";

struct Penalty {
  std::string op = "aten::pow";
  int layers = 6, penalised = 6;
  bool differences = false;  // penalises differences to other weights
  bool trains = true;
  std::string sizes = "float[64,64]";  // size of the penalised tensors
  std::string over = {};               // dimensions of the sum; empty: all
};

Report Of(const Penalty& how) {
  EngineText program;
  int next = 0;
  const std::string weight = "float[64,64]";
  for (int step = 0; step < 4; ++step) {
    next += 1000;
    for (int i = 0; i < how.layers; ++i) {
      program.Op("aten::linear", "(float[8,64],float[64,64])", 100, next + i);
    }
    const int first = next + 100;
    for (int i = 0; i < how.penalised; ++i) {
      const int at = first + 4 * i;
      if (how.differences) {
        program.Op("aten::sub", "(" + how.sizes + "," + how.sizes + ")", 20,
                   at);
      }
      program.Op(how.op, "(" + how.sizes + ",int)", 40,
                 how.trains ? at + 1 : -1);
      program.Op("aten::sum", "(" + how.sizes + how.over + ")", 20,
                 how.trains ? at + 2 : -1);
      program.Op("aten::add", "(float[],float[])", 5, how.trains ? at + 3 : -1);
    }
    for (int i = how.penalised; how.trains && i-- > 0;) {
      program.Node(first + 4 * i + 3, 5);
      program.Node(first + 4 * i + 2, 10);
      program.Node(first + 4 * i + 1, 60);
      if (how.differences) program.Node(first + 4 * i, 5);
    }
    for (int i = how.layers; i-- > 0;) {
      const bool sums = how.trains && i < how.penalised;
      program.Node(next + i, 200, sums ? weight : "");
      program.Keep(weight);
    }
    program.Update();
    program.EndStep();
  }
  return program.Analyzed();
}

TEST(ParameterPenaltyTest, AdvisesWeightDecay) {
  const Report report = Of(Penalty{});
  const Finding* finding = Find(report, kPenalty);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // 65 us forward and 81 us backward per layer, plus the sums.
  EXPECT_NEAR(finding->gain.expected_ms, 6 * (0.065 + 0.081 + 0.02), 0.2);
  EXPECT_NE(finding->evidence.find("aten::pow of 6 tensors"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("weight_decay"), std::string::npos);
}

TEST(ParameterPenaltyTest, NeedsHalfOfAllElements) {
  EXPECT_FALSE(IsClean(Of(Penalty{.penalised = 3}), kPenalty));
  EXPECT_TRUE(IsClean(Of(Penalty{.layers = 8, .penalised = 3}), kPenalty));
  EXPECT_TRUE(IsClean(Of(Penalty{.layers = 2, .penalised = 2}), kPenalty));
}

TEST(ParameterPenaltyTest, IgnoresPenaltiesNoOptimizerHas) {
  // Elastic weight consolidation, statistics, and penalties of activations.
  EXPECT_TRUE(IsClean(Of(Penalty{.differences = true}), kPenalty));
  EXPECT_TRUE(IsClean(Of(Penalty{.trains = false}), kPenalty));
  EXPECT_TRUE(IsClean(Of(Penalty{.op = "aten::relu"}), kPenalty));
  // The program adds up norms of groups of weights.
  EXPECT_TRUE(IsClean(Of(Penalty{.over = ",=\"[1]\""}), kPenalty));
  EXPECT_FALSE(IsClean(Of(Penalty{.over = ",=\"[0, 1]\""}), kPenalty));
  EXPECT_TRUE(IsClean(Of(Penalty{.sizes = "float[8,64]"}), kPenalty));
}

struct Norms {
  bool reads = true;
  bool before_backward = false;
  std::string sizes = "float[64,64]";
};

Report Of(const Norms& how) {
  EngineText program;
  int next = 0;
  for (int step = 0; step < 4; ++step) {
    next += 1000;
    const auto measure = [&] {
      for (int i = 0; i < 6; ++i) {
        program.Op("aten::linalg_vector_norm", "(" + how.sizes + ")", 20);
        if (how.reads) program.Op("aten::item", "(float[])", 5);
        program.Pass(10);
      }
    };
    for (int i = 0; i < 6; ++i) {
      program.Op("aten::linear", "(float[8,64],float[64,64])", 100, next + i);
    }
    if (how.before_backward) measure();
    for (int i = 6; i-- > 0;) {
      program.Node(next + i, 200);
      program.Keep("float[64,64]");
    }
    if (!how.before_backward) measure();
    program.Update();
    program.EndStep();
  }
  return program.Analyzed();
}

TEST(GradientNormsTest, AdvisesOneCallForAllNorms) {
  const Report report = Of(Norms{});
  const Finding* finding = Find(report, kNorms);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 6 * 0.035, 0.03);
  EXPECT_NE(finding->fix_python.find("get_total_norm"), std::string::npos);
}

TEST(GradientNormsTest, IgnoresClippingAndOtherNorms) {
  EXPECT_TRUE(IsClean(Of(Norms{.reads = false}), kNorms));
  EXPECT_TRUE(IsClean(Of(Norms{.before_backward = true}), kNorms));
  EXPECT_TRUE(IsClean(Of(Norms{.sizes = "float[8,64]"}), kNorms));
}

}  // namespace
}  // namespace stepscope::parameter_loops_test
