// Tests unread-gradients on recordings without sizes (record_shapes=False).
#include <string>
#include <vector>

#include "rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::unsized_gradients_test {
namespace {

constexpr char kRule[] = "unread-gradients";

// Runs `steps` three times in turn. Each character of a step stands for:
//   |  a forward pass over the layers of the next backward pass
//   n  a layer's backward node, which makes its gradient anew
//   a  the same, but adds to the gradient that is already there
//   u  an optimizer's step, which updates a list of tensors
//   t  an optimizer's step with momentum, which updates two tensors one by one
//   c  ops that scale a gradient, such as clipping
//   w  other work that takes as long as a layer
// A layer takes 1 ms forward, and 2.02 ms backward.
Report Of(const std::vector<std::string>& steps) {
  CpuText text;
  int number = 0;  // of the last autograd node
  for (size_t i = 0; i < 3 * steps.size(); ++i) {
    const std::string& step = steps[i % steps.size()];
    int next = 0;  // node to run; numbers fall in a backward pass
    for (size_t at = 0; at < step.size(); ++at) {
      if (step[at] == '|') {
        const size_t end = step.find_first_not_of("na", at + 1);
        for (size_t layer = at + 1; layer < end; ++layer) {
          text.Op("sequence=" + std::to_string(++number) + " aten::linear",
                  1'000);
        }
        next = number;
      } else if (step[at] == 'u') {
        text.Begin();
        text.Op("aten::_fused_adam_", 100);
        text.EndRange("kind=optimizer Optimizer.step#Adam.step");
      } else if (step[at] == 't') {
        text.Begin();
        for (int parameter = 0; parameter < 2; ++parameter) {
          text.Op("aten::mul_", 10);
          text.Op("aten::add_", 10);
          text.Op("aten::add_", 10);
        }
        text.EndRange("kind=optimizer Optimizer.step#SGD.step");
      } else if (step[at] == 'c') {
        text.Op("aten::mul_", 10);
      } else if (step[at] == 'w') {
        text.Op("aten::sort", 3'020);
      } else {
        text.Op("kind=backward sequence=" + std::to_string(next--) +
                    " AddmmBackward0",
                2'000);
        text.Nested("kind=backward torch::autograd::AccumulateGrad", 20,
                    step[at] == 'a' ? "aten::add_" : "aten::detach", 10);
      }
    }
    text.EndStep();
  }
  return text.Analyzed();
}

// Ten layers, of which the optimizer updates two: the last ones, which come
// first in backward.
TEST(UnsizedGradientsTest, AreUnreadBeyondWhatTheOptimizerUpdates) {
  const Report report = Of({"|nnnnnnnnnnt"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 8 * 2.02, 0.001);
  EXPECT_NE(finding->evidence.find(
                "8 parameters that no optimizer updates, in every step"),
            std::string::npos)
      << finding->evidence;
}

// The optimizer of a table updates the others.
TEST(UnsizedGradientsTest, AreReadBySeveralOptimizers) {
  const std::string layers = "|" + std::string(30, 'n');
  const Report report = Of({layers + "ttt"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("24 parameters that no optimizer updates"),
            std::string::npos)
      << finding->evidence;
  // How many this one updates is not known.
  EXPECT_EQ(Find(Of({layers + "tu"}), kRule), nullptr);
}

// True if the rule reports that it needs sizes to tell.
bool NeedsSizes(const Report& report) {
  return WhySkipped(report, kRule).find("record_shapes") != std::string::npos;
}

TEST(UnsizedGradientsTest, AreUnreadIfOnlyTheyAreNeverCleared) {
  const Report report = Of({"|nau"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2.02, 0.001);
  EXPECT_NE(finding->evidence.find(
                "1 parameter that no optimizer updates, in every step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("never set to None"), std::string::npos)
      << finding->evidence;
}

// The loss of the critic, which runs first, also reaches the generator; and
// each network's gradients are cleared right before its own pass.
TEST(UnsizedGradientsTest, AreUnreadInTheOtherNetworkOfAGan) {
  const Report report = Of({"|nau|anu"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // The generator in the critic's pass. In the other pass the generator needs
  // the critic's node, so that only keeping the gradient is saved.
  EXPECT_NEAR(finding->gain.expected_ms, 2.02 + 0.02, 0.001);
  EXPECT_NE(finding->evidence.find("that are cleared before any optimizer's "
                                   "step uses them, in every step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->evidence.find("never set to None"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("detach()"), std::string::npos);
}

// Two losses, each with a head of its own, train a shared layer together. With
// a step in between, that step takes what the first loss left in the layer.
TEST(UnsizedGradientsTest, AreReadByAStepAfterSeveralPasses) {
  EXPECT_TRUE(NeedsSizes(Of({"|nn|nau"})));
  EXPECT_TRUE(Promises(Of({"|nnu|nau"}), kRule));
}

// For example, a second optimizer steps and clears in every second step.
TEST(UnsizedGradientsTest, MayBeReadInStepsThatMakeThemAnew) {
  EXPECT_TRUE(NeedsSizes(Of({"|nau", "|nnu"})));
  EXPECT_TRUE(NeedsSizes(Of({"|nau|anu", "|nau|nnu"})));
}

TEST(UnsizedGradientsTest, MayBeReadIfSomeStepsRunNoPass) {
  EXPECT_TRUE(NeedsSizes(Of({"|nau", "wwu"})));
}

TEST(UnsizedGradientsTest, MayBeReadByAsManyOps) {
  // The optimizer's six ops may each update a tensor.
  EXPECT_TRUE(NeedsSizes(Of({"|nnnnnnt"})));
  EXPECT_TRUE(NeedsSizes(Of({"|nnnnnnnnnncccct"})));
  // The first step of two has no pass.
  EXPECT_TRUE(NeedsSizes(Of({"|nnnnnnnnnnt", "wt"})));
  // Each pass adds to what the one before it left.
  EXPECT_TRUE(NeedsSizes(Of({"|nnnnnnnnnn|aaaaaaaaaat"})));
}

// If a pass adds to all gradients, they may have been filled with zeros.
TEST(UnsizedGradientsTest, MayBeReadIfAPassTreatsAllAlike) {
  EXPECT_TRUE(NeedsSizes(Of({"|aau"})));
  EXPECT_TRUE(NeedsSizes(Of({"|nnu|aau"})));
  EXPECT_TRUE(NeedsSizes(Of({"|nnu"})));
}

}  // namespace
}  // namespace stepscope::unsized_gradients_test
