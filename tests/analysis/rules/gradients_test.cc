#include "support/cpu_text.h"
#include "rule_testing.h"
#include "support/trace_text.h"

namespace stepscope::gradients_test {
namespace {

// A step of `parameters` parameters: zeroing if `zero`, then `passes` backward
// passes whose AccumulateGrad nodes add if `add`.
Report Training(bool zero, bool add, int passes = 1, bool named = true) {
  std::string text;
  int64_t now = 0;
  const auto line = [&](const std::string& kind, int64_t ns,
                        const std::string& rest) {
    text += kind + " " + std::to_string(now) + ".." + std::to_string(now + ns) +
            " thread=0 " + rest + "\n";
  };
  for (int step = 0; step < 3; ++step) {
    const int64_t begin = now;
    const int64_t zero_begin = now;
    for (int i = 0; zero && i < 20; ++i) {
      line("op", 10'000, "aten::zero_");
      now += 10'000;
    }
    if (zero && named) {
      text += "range " + std::to_string(zero_begin) + ".." +
              std::to_string(now) +
              " thread=0 kind=optimizer Optimizer.zero_grad#SGD.zero_grad\n";
    }
    line("op", 500'000, "aten::mm");
    now += 500'000;
    for (int i = 0; i < 20 * passes; ++i) {
      line("op", 20'000, "kind=backward torch::autograd::AccumulateGrad");
      if (add) line("op", 15'000, "aten::add_");
      now += 20'000;
    }
    text += "step " + std::to_string(begin) + ".." + std::to_string(now) +
            " thread=0 number=" + std::to_string(step) + "\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(ZeroGradTest, FiresAndCountsTheAddsToo) {
  const Report report = Training(true, true);
  const Finding* finding = Find(report, "zero-grad-kernels");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NEAR(finding->gain.expected_ms, 20 * 0.025, 0.01);
  EXPECT_NE(finding->evidence.find("20 calls"), std::string::npos);
}

TEST(ZeroGradTest, StaysSilentWithSetToNone) {
  EXPECT_TRUE(IsClean(Training(false, false), "zero-grad-kernels"));
}

TEST(ZeroGradTest, StaysSilentWhereGradientsOnlyAccumulate) {
  EXPECT_TRUE(IsClean(Training(false, true, 2), "zero-grad-kernels"));
}

TEST(ZeroGradTest, LeavesTheAddsOfAccumulationAlone) {
  const Report report = Training(true, true, 4);
  ASSERT_NE(Find(report, "zero-grad-kernels"), nullptr);
  EXPECT_NEAR(Find(report, "zero-grad-kernels")->gain.expected_ms, 20 * 0.01,
              0.01);
}

TEST(ZeroGradTest, SeesLibTorchWhereNoRangeNamesTheZeroing) {
  EXPECT_TRUE(Promises(Training(true, true, 1, false), "zero-grad-kernels"));
}

TEST(ZeroGradTest, AZeroedBufferThatIsNoGradientIsNotMeant) {
  EXPECT_TRUE(IsClean(Training(true, false, 1, false), "zero-grad-kernels"));
}

// Python's ranges say which zeroing is meant; record_function() zeroes a tensor
// of its own.
TEST(ZeroGradTest, WhatTheRangesDoNotHoldIsNotMeant) {
  CpuText text;
  for (int i = 0; i < 3; ++i) {
    text.Begin();
    text.Op("aten::empty", 10);
    text.EndRange("kind=optimizer Optimizer.zero_grad#SGD.zero_grad");
    for (int k = 0; k < 50; ++k) text.Op("aten::zero_", 300);
    text.Op("aten::mm", 10'000);
    text.Nested("kind=backward torch::autograd::AccumulateGrad", 500,
                "aten::add_", 400);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), "zero-grad-kernels"));
}

// Gradients of which the sum frees 9 MB: the node takes `own_us` by itself.
double WonMs(int64_t own_us) {
  CpuText text;
  for (int i = 0; i < 3; ++i) {
    text.Begin();
    for (int k = 0; k < 4; ++k) text.Op("aten::zero_", 300);
    text.EndRange("kind=optimizer Optimizer.zero_grad#SGD.zero_grad");
    for (int k = 0; k < 4; ++k) {
      text.Op("aten::mkldnn_convolution_backward", 20'000);
      text.Nested("kind=backward torch::autograd::AccumulateGrad",
                  1000 + own_us, "aten::add_", 1000);
    }
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "zero-grad-kernels");
  return finding == nullptr ? -1 : finding->gain.expected_ms;
}

TEST(ZeroGradTest, CountsPagesThatAreGivenBackAndHadAgain) {
  const double plain = WonMs(5);
  EXPECT_NEAR(plain, 4 * 1.3, 0.05);
  // Four times 0.5 ms to give back, four times as much to have them again.
  EXPECT_NEAR(WonMs(505), plain + 4 * 0.5 * 5, 0.1);
  // Faults cannot be more than half of what made the gradient.
  EXPECT_NEAR(WonMs(5005), plain + 4 * (5 + 10), 0.1);
}

}  // namespace
}  // namespace stepscope::gradients_test
