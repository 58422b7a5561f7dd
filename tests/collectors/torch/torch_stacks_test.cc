#include "torch_stacks.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "torch_window.h"

namespace stepscope::torch_stacks_test {

// Not in an anonymous namespace, so that the symbols have stable names.
__attribute__((noinline)) at::Tensor CalledFromHere(const at::Tensor& a) {
  at::Tensor sum = a.add(a);
  return sum.mul(sum);
}
__attribute__((noinline)) at::Tensor AndFromHere(const at::Tensor& a) {
  at::Tensor sum = a.add(a);
  return sum;
}

namespace {

using testing::HasSubstr;
using testing::Not;

// Returns an op's frames, one per line; "" if it has no stack.
std::string FramesOf(const Trace& trace, const Op& op) {
  std::string all;
  if (op.stack == kNone) return all;
  for (NameId frame : trace.stacks()[op.stack].frames) {
    all += std::string(trace.name(frame)) + "\n";
  }
  return all;
}

// Records `steps` steps of `body`; the first step is sampled.
template <typename Body>
Trace RecordSteps(int steps, Body body,
                  TorchOptions options = {.with_stack = true}) {
  TorchWindow window(options);
  window.collector().OnSampleStep(/*is_recorded=*/false);
  for (int i = 0; i < steps; ++i) {
    body(i);
    window.collector().OnStep(i, 0);
  }
  return window.CloseAndBuild();
}

TEST(TorchStacksTest, NamesTheFunctionThatCalledAnOperatorInEveryStep) {
  const at::Tensor a = at::ones({4, 8});
  const Trace trace = RecordSteps(3, [&](int) {
    CalledFromHere(a);
    AndFromHere(a);
  });
  const auto adds = OpsNamed(trace, "aten::add");
  ASSERT_EQ(adds.size(), 6u);
  for (size_t i = 0; i < adds.size(); ++i) {
    const std::string frames = FramesOf(trace, *adds[i]);
    EXPECT_THAT(frames,
                HasSubstr(i % 2 == 0 ? "CalledFromHere" : "AndFromHere"));
    EXPECT_THAT(frames, Not(HasSubstr("stepscope::AddStack")));
    EXPECT_THAT(frames, Not(HasSubstr("stepscope::TakeSample")));
    EXPECT_THAT(frames, Not(testing::StartsWith("RecordFunction")));
  }
  for (const Op* op : OpsNamed(trace, "aten::mul")) {
    EXPECT_THAT(FramesOf(trace, *op), HasSubstr("CalledFromHere"));
  }
}

TEST(TorchStacksTest, LeavesOperatorsInsideOthersToTheOuterOne) {
  const Trace trace = RecordSteps(2, [&](int) {
    at::empty({2});
    at::ones({2});  // calls empty
  });
  const auto ops = OpsNamed(trace, "aten::empty");
  ASSERT_EQ(ops.size(), 4u);
  for (const Op* op : ops) {
    EXPECT_EQ(op->stack == kNone, ParentName(trace, *op) == "aten::ones");
  }
  for (const Op* op : OpsNamed(trace, "aten::ones")) {
    EXPECT_NE(op->stack, kNone);
  }
}

TEST(TorchStacksTest, ScopesAreNoOperators) {
  const Trace trace = RecordSteps(2, [&](int step) {
    RECORD_USER_SCOPE("step " + std::to_string(step));
    at::empty({2});
  });
  for (const Op* op : OpsNamed(trace, "aten::empty")) {
    EXPECT_NE(op->stack, kNone);
  }
}

TEST(TorchStacksTest, TakesNoStacksUnlessAskedFor) {
  EXPECT_TRUE(RecordSteps(2, [](int) { at::ones({2}); }, {}).stacks().empty());
  // Nor are there stacks before the sampled step.
  TorchWindow window({.with_stack = true});
  at::ones({2});
  EXPECT_TRUE(window.CloseAndBuild().stacks().empty());
}

TEST(TorchStacksTest, AlwaysTakesThoseOfCopiesBetweenDevices) {
  const at::Tensor host = at::ones({2});
  at::Tensor other = at::empty({2}, at::TensorOptions().device(at::kMeta));
  at::Tensor same = at::empty({2});
  const Trace trace =
      RecordSteps(2,
                  [&](int step) {
                    for (int i = 0; step > 0 && i < 50;
                         ++i) {  // the sampled step copies nothing
                      other.copy_(host);
                      same.copy_(host);
                    }
                  },
                  {.record_shapes = true, .with_stack = true});
  const auto copies = OpsNamed(trace, "aten::copy_");
  ASSERT_EQ(copies.size(), 100u);
  int same_with = 0;
  for (size_t i = 0; i < copies.size(); i += 2) {
    EXPECT_NE(copies[i]->stack, kNone);
    same_with += copies[i + 1]->stack != kNone;
  }
  EXPECT_LT(same_with, 25);  // one in a hundred is sampled again
}

TEST(TorchStacksTest, SaysHowManyOperatorsOfOtherStepsHaveNone) {
  const at::Tensor a = at::ones({2});
  const auto losses = [&](bool alike) {
    const Trace trace = RecordSteps(2, [&](int step) {
      for (int i = 0; i < (alike || step == 0 ? 3 : 2); ++i) {
        i == 0 ? CalledFromHere(a) : AndFromHere(a);
      }
      if (!alike && step == 1) a.neg();
    });
    std::string all;
    for (const Loss& loss : trace.losses()) {
      all += loss.name + " " + std::to_string(loss.count) + "\n";
    }
    return all;
  };
  EXPECT_EQ(losses(true), "");
  // Two of three additions (they are on two lines), and the new operator.
  EXPECT_EQ(losses(false), "stacks-unmatched 3\n");
}

}  // namespace
}  // namespace stepscope::torch_stacks_test
