#include "steps/optimizer_spans.h"

#include <gtest/gtest.h>

#include <string>

#include "support/cpu_text.h"

namespace stepscope::optimizer_spans_test {
namespace {

constexpr const char* kAccumulate =
    "kind=backward torch::autograd::AccumulateGrad";

struct Found {
  OptimizerSpans spans;
  std::vector<size_t> accumulated;  // per step
};
Found In(const CpuText& text) {
  const Trace trace = text.Recorded();
  const OpTree tree(trace);
  const Steps steps = FindSteps(trace, tree);
  Found found{.spans = FindOptimizerSpans(trace, tree, steps),
              .accumulated = {}};
  for (const auto& pass : AccumulationsOfAPass(trace, tree, steps)) {
    found.accumulated.push_back(pass.size());
  }
  return found;
}

TEST(OptimizerSpansTest, RangesSayWhereItSteps) {
  CpuText text;
  text.Op("aten::mm", 100);
  text.Op(kAccumulate, 10);
  text.Op("aten::add_", 10);
  text.Begin();
  text.Op("aten::add_", 20);
  text.EndRange("kind=optimizer Optimizer.step#SGD.step");
  text.EndStep();
  const OptimizerSpans found = In(text).spans;
  EXPECT_FALSE(found.inferred);
  ASSERT_EQ(found.spans.size(), 1u);
  EXPECT_EQ(found.spans[0].length(), 20'000);
}

// step(closure), as Lightning and LBFGS call it: the model runs inside.
TEST(OptimizerSpansTest, AClosureIsNoPartOfTheUpdate) {
  CpuText text;
  for (int i = 0; i < 3; ++i) {
    text.Begin();
    text.Op("sequence=1 aten::mm", 100);
    text.Op("kind=backward sequence=1 MmBackward0", 150);
    text.Op(kAccumulate, 10);
    text.Op("aten::add_", 20);
    text.EndRange("kind=optimizer Optimizer.step#SGD.step");
    text.EndStep();
  }
  const OptimizerSpans found = In(text).spans;
  EXPECT_FALSE(found.inferred);
  ASSERT_EQ(found.spans.size(), 3u);
  EXPECT_EQ(found.spans[0].length(), 20'000);
  const Report report = text.Analyzed();
  EXPECT_NEAR(report.phases_ms.at("forward"), 0.1, 1e-6);
  EXPECT_NEAR(report.phases_ms.at("backward"), 0.16, 1e-6);
  EXPECT_NEAR(report.phases_ms.at("optimizer"), 0.02, 1e-6);
}

// LibTorch: clipping before the updates, logging and validation after them.
TEST(OptimizerSpansTest, WithoutRangesTheLongestRunOfUpdatesCounts) {
  CpuText text;
  for (int i = 0; i < 2; ++i) {
    text.Op("aten::mm", 100);
    text.Op(kAccumulate, 10);
    text.Op("aten::add", 10);
    text.Op("aten::clamp", 10);
    for (int k = 0; k < 3; ++k) text.Op("aten::add_", 10);
    text.Op("aten::argmax", 10);
    text.Op("aten::add", 10);
    text.Op("aten::mm", 100);
    for (int k = 0; k < 9; ++k) text.Op("aten::add_", 10);
    text.EndStep();
  }
  const OptimizerSpans found = In(text).spans;
  EXPECT_TRUE(found.inferred);
  ASSERT_EQ(found.spans.size(), 2u);
  EXPECT_EQ(found.spans[0].begin_ns, 131'000);
  EXPECT_EQ(found.spans[0].length(), 30'000);
}

TEST(OptimizerSpansTest, NothingWhereNothingIsTrained) {
  CpuText text;
  text.Op("aten::mm", 100);
  for (int k = 0; k < 3; ++k) text.Op("aten::add_", 10);
  text.EndStep();
  EXPECT_TRUE(In(text).spans.spans.empty());
}

TEST(AccumulationsOfAPassTest, AForwardPassStartsANewBackwardPass) {
  CpuText text;
  for (int i = 0; i < 2; ++i) {
    for (int pass = 0; pass < 3; ++pass) {
      text.Op("aten::mm", 100);
      for (int k = 0; k < 5 + pass; ++k) {
        // The backward pass runs a product of its own, as with checkpointing.
        text.Nested("kind=backward MmBackward0", 20, "aten::mm", 10);
        text.Op(kAccumulate, 10);
      }
    }
    text.EndStep();
  }
  EXPECT_EQ(In(text).accumulated, (std::vector<size_t>{7, 7}));
}

}  // namespace
}  // namespace stepscope::optimizer_spans_test
