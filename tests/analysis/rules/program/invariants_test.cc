#include "analysis/rules/rule_testing.h"
#include "support/engine_text.h"

namespace stepscope::invariants_test {
namespace {

constexpr const char* kRule = "invariant-in-loop";
constexpr const char* kInput = "float[24,24,256]";
constexpr const char* kWeight = "float[128,256]";

// A decoder of 12 positions. Per position, the layer takes 1 ms, and the
// attention on its result and the same input takes 200 us. Their nodes take as
// long.
struct How {
  int positions = 12;
  bool own_inputs = false;   // each position has one
  bool own_weights = false;  // each position has one
  bool data = false;         // the input is data without a gradient
  bool both = false;         // the layer's node has two products
  bool one_reader = false;   // only the layer reads the input: no sum
  std::string between = "(float[24,128]) aten::tanh";  // an op in each position
  std::string then = "";                               // an op after that
  bool read_twice = false;  // the result of `between` is read twice
  bool dropped = false;     // one more call, whose result nothing reads
};

Report Of(const How& how) {
  EngineText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    if (how.own_inputs) text.Op("aten::unbind", "(float[24,12,24,256])", 5);
    if (how.dropped) {
      text.Op("aten::linear",
              "(" + std::string(kInput) + "," + kWeight + ",float[128])", 1000);
    }
    for (int i = 0; i < how.positions; ++i) {
      const int number = sequence + 4 * i;
      text.Op("aten::t", "(" + std::string(kWeight) + ")", 10, number);
      text.Op("aten::linear",
              "(" + std::string(kInput) + "," + kWeight + ",float[128])", 1000,
              number + 1);
      text.Op("aten::matmul", "(float[24,1,24]," + std::string(kInput) + ")",
              200, number + 2);
      for (const std::string* one : {&how.between, &how.then}) {
        const std::string& op = *one;
        if (op.empty()) continue;
        const size_t name = op.find(") ") + 2;
        text.Op(op.substr(name), op.substr(0, name - 1), 100,
                &op == &how.then ? number + 3 : -1);
      }
    }
    for (int i = how.positions; i-- > 0;) {
      const int number = sequence + 4 * i;
      const bool last = i == how.positions - 1;
      if (!how.then.empty()) {
        text.Node(number + 3, 100, how.read_twice ? kInput : "");
      }
      // The engine adds up the gradients of both uses of an input.
      const bool sums = !how.data && !how.own_inputs && !last;
      text.Node(number + 2, 200, sums ? kInput : "");
      text.Node(number + 1, 1000, how.data || how.one_reader ? "" : kInput,
                how.both);
      text.Node(number, 10, last || how.own_weights ? "" : kWeight);
      if (how.own_weights) text.Keep(kWeight);
    }
    if (!how.own_weights) text.Keep(kWeight);
    text.Update();
    sequence += 4 * how.positions;
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(InvariantsTest, FindsKeysThatAreProjectedForEachWord) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find(
                "aten::linear runs 12 times per step with the same weight on "
                "the same tensor of [24, 24, 256]"),
            std::string::npos)
      << finding->evidence;
  // Saves eleven calls and nodes, and for each of two gradients eleven sums of
  // 20 us. A sum inside a node counts once.
  EXPECT_NEAR(finding->gain.expected_ms, 11 * 2.0 + 11 * 0.04, 0.1);
}

TEST(InvariantsTest, SeesACallWhoseResultIsDropped) {
  const Report report = Of({.both = true, .dropped = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NE(finding->evidence.find("aten::linear runs 13 times per step"),
            std::string::npos)
      << finding->evidence;
}

// The keys are as large as the memory, and the attention reads them before the
// next word.
TEST(InvariantsTest, AllowsTensorsOfTheSameSizeInTheLoop) {
  const std::string input = kInput;
  How how{.both = true,
          .between = "(" + input + ") aten::tanh",
          .then = "(" + input + ",Scalar=\"1\",bool=\"False\") aten::sum"};
  EXPECT_NE(Find(Of(how), kRule), nullptr);
  // The layer may take what the loop makes if that tensor has two readers, or
  // if the layer's input has one reader.
  how.read_twice = true;
  EXPECT_TRUE(IsClean(Of(how), kRule));
  how.read_twice = false;
  how.one_reader = true;
  EXPECT_TRUE(IsClean(Of(how), kRule));
}

TEST(InvariantsTest, IgnoresInputsAndWeightsOfEachPosition) {
  EXPECT_TRUE(IsClean(Of({.own_inputs = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.own_weights = true}), kRule));
  // The loop makes the input.
  EXPECT_TRUE(IsClean(
      Of({.between = "(" + std::string(kInput) + ") aten::tanh"}), kRule));
}

// Data has no gradient, so no sum of gradients can show that all positions
// share it.
TEST(InvariantsTest, HintsThatDataMayBeTheSame) {
  const Report report = Of({.data = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("of the weight (the tensor needs none)"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(Of({.own_inputs = true, .data = true}), kRule));
}

TEST(InvariantsTest, NeedsMoreThanTwoUses) {
  EXPECT_FALSE(IsClean(Of({.positions = 5}), kRule));
  EXPECT_TRUE(IsClean(Of({.positions = 2}), kRule));
}

// A loss that computes all probabilities again for each class. A call takes 500
// us, and so does its node.
Report Dice(int classes, bool one_tensor, const std::string& other = "",
            const std::string& argument = "Scalar=\"1\"") {
  const std::string logits = "float[2,5,64,64]";
  EngineText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < classes; ++i) {
      text.Op("aten::softmax", "(" + logits + "," + argument + ")", 500,
              sequence + 2 * i);
      text.Op("aten::select", "(" + logits + ",Scalar=\"1\",Scalar=\"0\")", 10,
              sequence + 2 * i + 1);
      text.Op("aten::sum", "(float[2,64,64])", 100);
      if (!other.empty()) text.Op(other, "(" + logits + ")", 10);
    }
    text.Op("aten::mm", "(float[64,64],float[64,64])", 10'000);
    for (int i = classes; i-- > 0;) {
      text.Node(sequence + 2 * i + 1, 100, "");
      text.Node(sequence + 2 * i, 500,
                one_tensor && i < classes - 1 ? logits : "");
    }
    text.Keep(kWeight);
    text.Update();
    sequence += 2 * classes;
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(InvariantsTest, FindsProbabilitiesComputedForEachClass) {
  const Report report = Dice(5, true);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("aten::softmax runs 5 times per step on the "
                                   "same tensor of [2, 5, 64, 64]"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(finding->gain.expected_ms, 4 * 1.0, 0.1);
  EXPECT_TRUE(IsClean(Dice(5, false), kRule));
  EXPECT_TRUE(IsClean(Dice(2, true), kRule));
  EXPECT_TRUE(IsClean(Dice(5, true, "aten::mul"), kRule));
  // As far as the sizes tell, another tensor each time.
  EXPECT_TRUE(IsClean(Dice(5, true, "", "float[1]"), kRule));
}

}  // namespace
}  // namespace stepscope::invariants_test
