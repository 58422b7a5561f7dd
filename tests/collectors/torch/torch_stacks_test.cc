#include "torch_stacks.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "torch_window.h"

namespace stepscope {

// Not in an anonymous namespace, so that the symbol has a stable name.
__attribute__((noinline)) at::Tensor CalledFromHere(const at::Tensor& a) {
  at::Tensor sum = a.add(a);
  return sum.mul(sum);
}

namespace {

TEST(TorchStacksTest, NamesTheFunctionThatCalledAnOperator) {
  const at::Tensor a = at::ones({4, 8});
  TorchWindow window({.with_stack = true});
  for (int i = 0; i < 3; ++i) CalledFromHere(a);
  const Trace trace = window.CloseAndBuild();
  for (const char* name : {"aten::add", "aten::mul"}) {
    const auto ops = OpsNamed(trace, name);
    ASSERT_EQ(ops.size(), 3u);
    // Sampled once per chain.
    EXPECT_NE(ops[0]->stack, kNone);
    EXPECT_EQ(ops[1]->stack, kNone);
    EXPECT_EQ(ops[2]->stack, kNone);
    std::string all;
    for (NameId frame : trace.stacks()[ops[0]->stack].frames) {
      all += std::string(trace.name(frame)) + "\n";
    }
    EXPECT_THAT(all, testing::HasSubstr("CalledFromHere"));
    EXPECT_THAT(all, testing::Not(testing::HasSubstr("stepscope::AddStack")));
    EXPECT_THAT(all, testing::Not(testing::StartsWith("RecordFunction")));
  }
}

TEST(TorchStacksTest, SamplesTheSameOperatorAgainInsideAnotherOne) {
  TorchWindow window({.with_stack = true});
  at::empty({2});
  at::ones({2});  // calls empty
  at::empty({2});
  const Trace trace = window.CloseAndBuild();
  const auto ops = OpsNamed(trace, "aten::empty");
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_NE(ops[0]->stack, kNone);
  EXPECT_NE(ops[1]->stack, kNone);
  EXPECT_EQ(ops[2]->stack, kNone);
}

TEST(TorchStacksTest, TakesNoStacksUnlessAskedFor) {
  TorchWindow window;
  at::ones({2});
  const Trace trace = window.CloseAndBuild();
  EXPECT_TRUE(trace.stacks().empty());
}

TEST(TorchStacksTest, CountsTheOperatorsWhoseChainsFoundNoRoom) {
  const at::Tensor a = at::ones({2});
  const auto lost = [&a](size_t chains) {
    TorchWindow window({.with_stack = true});
    for (size_t i = 0; i < chains; ++i) {
      // Each scope is a chain of its own.
      RECORD_USER_SCOPE("batch " + std::to_string(i));
    }
    a.neg();
    const Trace trace = window.CloseAndBuild();
    for (const Loss& loss : trace.losses()) {
      if (loss.name == "stack-table-full") return loss.count;
    }
    return int64_t{0};
  };
  EXPECT_EQ(lost(kMaxChains - 1), 0);  // and the operator is the last one
  EXPECT_EQ(lost(kMaxChains), 1);      // now it comes too late
  EXPECT_EQ(lost(kMaxChains + 5), 6);
}

}  // namespace
}  // namespace stepscope
