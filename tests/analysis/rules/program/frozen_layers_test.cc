#include "analysis/rules/rule_testing.h"
#include "support/engine_text.h"

namespace stepscope::frozen_layers_test {
namespace {

constexpr const char* kFrozen = "frozen-forward";

struct Teacher {
  std::string before = {};  // an op before the teacher
  std::string weight = "float[96,64]";
  int layers = 2;
  bool trains = true;        // else nothing has a gradient
  std::string dropped = {};  // the probability of dropout in the student
  double us = 2'000;         // of each layer
};

// Steps of at least 10 ms: a teacher without gradients, then a student with one
// layer of 32 x 64.
Report Taught(const Teacher& how) {
  constexpr const char* kStudent = "float[32,64]";
  EngineText text;
  for (int step = 0; step < 4; ++step) {
    if (!how.before.empty()) text.Op(how.before, "(float[16,64])", 10);
    for (int i = 0; i < how.layers; ++i) {
      text.Op("aten::linear", "(float[16,64]," + how.weight + ")", how.us);
      text.Op("aten::relu", "(float[16,96])", 500);
    }
    if (!how.dropped.empty()) {
      text.Op("aten::dropout",
              "(float[16,64],=\"" + how.dropped + "\",=\"True\")", 10);
    }
    text.Op("aten::linear", "(float[16,64]," + std::string(kStudent) + ")",
            5'000, how.trains ? step : -1);
    if (how.trains) {
      text.Node(step, 5'000);
      text.Keep(kStudent);
      text.Update();
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(FrozenForwardTest, AsksWhetherTheResultsMayBeKept) {
  const Report report = Taught({});
  const Finding* finding = Find(report, kFrozen);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Both layers and the ops between them.
  EXPECT_NEAR(finding->gain.expected_ms, 4.5, 0.01);
  EXPECT_NE(finding->evidence.find("2 layers run without gradients"),
            std::string::npos)
      << finding->evidence;
}

TEST(FrozenForwardTest, IgnoresRandomInputsAndTargetNetworks) {
  EXPECT_TRUE(IsClean(Taught({.before = "aten::randn_like"}), kFrozen));
  EXPECT_FALSE(IsClean(Taught({.before = "aten::randint"}), kFrozen));
  // The weights have the size of trained ones, as in a target network, which is
  // a copy.
  EXPECT_TRUE(IsClean(Taught({.weight = "float[32,64]"}), kFrozen));
  // If nothing is trained, no layer counts as frozen.
  EXPECT_TRUE(IsClean(Taught({.trains = false}), kFrozen));
}

// With p = 0, dropout records no node, as if it were not part of what is
// trained.
TEST(FrozenForwardTest, IgnoresActiveDropoutOnly) {
  EXPECT_TRUE(IsClean(Taught({.dropped = "0.1"}), kFrozen));
  EXPECT_FALSE(IsClean(Taught({.dropped = "0."}), kFrozen));
}

// Two convolutions without gradients on pictures of 32 x 32, and a trained one
// with a weight of the same size on pictures of `side` x `side`.
Report Encoded(const std::string& side) {
  const std::string weight = "float[8,8,3,3]";
  EngineText text;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 2; ++i) {
      text.Op("aten::conv2d", "(float[4,8,32,32]," + weight + ")", 2'000);
    }
    text.Op("aten::conv2d",
            "(float[4,8," + side + "," + side + "]," + weight + ")", 5'000,
            step);
    text.Node(step, 5'000);
    text.Keep(weight);
    text.Update();
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(FrozenForwardTest, ATwinTakesPicturesOfTheSameSize) {
  EXPECT_TRUE(IsClean(Encoded("32"), kFrozen));
  EXPECT_FALSE(IsClean(Encoded("12"), kFrozen));
}

TEST(FrozenForwardTest, NeedsTwoLayersAndATenthOfTheStep) {
  EXPECT_TRUE(IsClean(Taught({.layers = 1}), kFrozen));
  EXPECT_TRUE(IsClean(Taught({.us = 250}), kFrozen));
  EXPECT_FALSE(IsClean(Taught({.us = 450}), kFrozen));
}

}  // namespace
}  // namespace stepscope::frozen_layers_test
