#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::weights_test {
namespace {

constexpr const char* kWeights = "recomputed-weights";
constexpr const char* kPenalty = "parameter-penalty";
constexpr const char* kNorms = "norms-one-by-one";

// Steps on a CPU, with the ranges that the engine opens.
class Program {
 public:
  static std::string Sequence(int number) {
    return "sequence=" + std::to_string(number);
  }
  void Op(const std::string& name, const std::string& inputs, double us,
          int sequence = -1) {
    text_.Op(name, inputs, {}, us, sequence < 0 ? "" : Sequence(sequence));
  }
  void Node(int number, double us, const std::string& added = "") {
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    Op("aten::mul", "", us);
    text_.End("XBackward0", "", 0, "kind=backward " + Sequence(number));
    if (!added.empty()) Op("aten::add_", "(" + added + "," + added + ")", 20);
    text_.End("autograd::engine::evaluate_function: XBackward0", "", 0,
              "kind=backward " + Sequence(number));
  }
  void Keep(const std::string& gradient) {
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    text_.End("torch::autograd::AccumulateGrad", "(" + gradient + ")");
    text_.End(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "", 0, "kind=backward");
  }
  void Update() {
    text_.Begin();
    Op("aten::_fused_adamw_", "", 50);
    text_.EndRange("Optimizer.step#AdamW.step", "optimizer");
  }

  ComputeText text_;
};

struct Loop {
  int uses = 10;
  std::string op = "aten::_weight_norm_interface";
  std::string inputs = "(float[64,64],float[64,1],int)";
  bool one_parameter = true;  // else each use has a parameter of its own
  double us = 50;
  bool estimates = false;  // its norm before each use, by a product
};

// A loop that multiplies by a weight, which is made for each use.
Report Of(const Loop& how) {
  Program program;
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
    program.text_.EndStep();
  }
  return program.text_.Analyzed();
}

TEST(RecomputedWeightsTest, MakesEachWeightOnce) {
  const Report report = Of({});
  const Finding* finding = Find(report, kWeights);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Nine runs, forward and backward, each with a sum of 20 us.
  EXPECT_NEAR(finding->gain.expected_ms, 9 * (0.05 + 0.051 + 0.02), 0.1);
  EXPECT_NE(finding->evidence.find("run 10 times per step for 1 parameter"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("parametrize.cached()"),
            std::string::npos);
}

TEST(RecomputedWeightsTest, AnyOpOfOneParameterCounts) {
  EXPECT_FALSE(IsClean(
      Of({.op = "aten::_to_copy", .inputs = "(float[64,64],int)"}), kWeights));
}

TEST(RecomputedWeightsTest, LayersHaveWeightsOfTheirOwn) {
  EXPECT_TRUE(IsClean(Of({.one_parameter = false}), kWeights));
  EXPECT_TRUE(IsClean(Of({.uses = 1}), kWeights));
}

TEST(RecomputedWeightsTest, LeavesWhatActivationsHaveAPartIn) {
  EXPECT_TRUE(
      IsClean(Of({.op = "aten::mul", .inputs = "(float[64,64],float[8,64])"}),
              kWeights));
  // A view costs nothing, and is made for each product.
  EXPECT_TRUE(
      IsClean(Of({.op = "aten::t", .inputs = "(float[64,64])"}), kWeights));
}

TEST(RecomputedWeightsTest, TwoEstimatesOfANormAreCustomary) {
  const auto uses = [](int count) {
    return Of(Loop{.uses = count,
                   .op = "aten::div",
                   .inputs = "(float[64,64],float[])",
                   .us = 300,
                   .estimates = true});
  };
  EXPECT_TRUE(IsClean(uses(2), kWeights));
  EXPECT_FALSE(IsClean(uses(3), kWeights));
}

struct Penalty {
  std::string op = "aten::pow";
  int layers = 6, penalised = 6;
  bool differences = false;  // of the weights from others
  bool trains = true;
  std::string sizes = "float[64,64]";  // of what is penalised
  std::string over = {};               // the dimensions of the sum, if not all
};

Report Of(const Penalty& how) {
  Program program;
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
    program.text_.EndStep();
  }
  return program.text_.Analyzed();
}

TEST(ParameterPenaltyTest, TheOptimizerDecaysWeights) {
  const Report report = Of(Penalty{});
  const Finding* finding = Find(report, kPenalty);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // 65 us forward and 81 backward for each, and the sums.
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

TEST(ParameterPenaltyTest, LeavesWhatNoOptimizerDoes) {
  // As elastic weight consolidation, statistics, and activations.
  EXPECT_TRUE(IsClean(Of(Penalty{.differences = true}), kPenalty));
  EXPECT_TRUE(IsClean(Of(Penalty{.trains = false}), kPenalty));
  EXPECT_TRUE(IsClean(Of(Penalty{.op = "aten::relu"}), kPenalty));
  // Groups of weights, whose norms are added up.
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
  Program program;
  int next = 0;
  for (int step = 0; step < 4; ++step) {
    next += 1000;
    const auto measure = [&] {
      for (int i = 0; i < 6; ++i) {
        program.Op("aten::linalg_vector_norm", "(" + how.sizes + ")", 20);
        if (how.reads) program.Op("aten::item", "(float[])", 5);
        program.text_.Pass(10);
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
    program.text_.EndStep();
  }
  return program.text_.Analyzed();
}

TEST(GradientNormsTest, OneCallComputesAll) {
  const Report report = Of(Norms{});
  const Finding* finding = Find(report, kNorms);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 6 * 0.035, 0.03);
  EXPECT_NE(finding->fix_python.find("get_total_norm"), std::string::npos);
}

TEST(GradientNormsTest, LeavesClippingAndOtherNorms) {
  EXPECT_TRUE(IsClean(Of(Norms{.reads = false}), kNorms));
  EXPECT_TRUE(IsClean(Of(Norms{.before_backward = true}), kNorms));
  EXPECT_TRUE(IsClean(Of(Norms{.sizes = "float[8,64]"}), kNorms));
}

}  // namespace
}  // namespace stepscope::weights_test
