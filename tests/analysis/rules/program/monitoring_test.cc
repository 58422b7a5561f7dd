#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::monitoring_test {
namespace {

constexpr const char* kRule = "activation-statistics";

struct Hook {
  std::string op = "aten::histc";  // besides the mean
  std::string takes = {};          // its inputs, if sizes are recorded
  std::string behind = "aten::conv2d";
  int64_t us = 900;
  int layers = 3;
  bool reads = true, trains = false;
  bool infers = false;  // no backward pass
  int in_steps = 4;     // of four
};

// Steps of 40 ms in which a hook computes statistics of each layer's output:
// the mean in 100 us, and how.op.
Report Hooked(const Hook& how) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    const std::string link = "sequence=" + std::to_string(step) + " ";
    const bool hooks = step < how.in_steps;
    for (int i = 0; i < how.layers; ++i) {
      text.Op("aten::conv2d", 2'000);
      if (hooks) {
        text.Op("aten::mean", 100);
        if (how.reads) text.Op("aten::item", 5);
        text.Op((how.trains ? link : "") +
                    (how.takes.empty() ? "" : "inputs=(" + how.takes + ") ") +
                    how.op,
                how.us);
        if (how.reads) text.Op("aten::item", 5);
      }
      text.Op(how.behind, 100);
    }
    // Without the hooks, sorting takes as much longer.
    text.Op("aten::sort",
            40'000 - how.layers * (2'100 + (hooks ? 110 + how.us : 0)));
    if (how.trains) text.Op("kind=backward " + link + "StdBackward0", 50);
    if (!how.infers) text.Op("kind=backward sequence=900 MmBackward0", 50);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(ActivationStatisticsTest, CountsHistogramsWithWhatIsBesideThem) {
  const Report report = Hooked({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 3 * 1.01, 0.02);
  EXPECT_NE(finding->evidence.find("of 3 tensors per step, 3 histograms"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("every N steps"), std::string::npos);
}

// One or two histograms may weight a loss.
TEST(ActivationStatisticsTest, NeedsThreeHistogramsWithoutSizes) {
  EXPECT_TRUE(IsClean(Hooked({.layers = 2}), kRule));
}

TEST(ActivationStatisticsTest, SeesWhetherTheNextOpTakesTheHistogram) {
  const std::string takes = "float[64,32],long=\"40\",Scalar=\"0\"";
  EXPECT_FALSE(IsClean(Hooked({.takes = takes, .layers = 1}), kRule));
  EXPECT_FALSE(
      IsClean(Hooked({.takes = takes,
                      .behind = "inputs=(float[64,40],float[40]) aten::mul",
                      .layers = 1,
                      .reads = false}),
              kRule));
  EXPECT_TRUE(IsClean(Hooked({.takes = takes,
                              .behind = "inputs=(float[40]) aten::mul",
                              .layers = 1,
                              .reads = false}),
                      kRule));
}

TEST(ActivationStatisticsTest, CountsDeviationsThatAreRead) {
  EXPECT_FALSE(IsClean(Hooked({.op = "aten::std"}), kRule));
  // An input is normalised by what is read of it.
  EXPECT_TRUE(IsClean(Hooked({.op = "aten::std", .layers = 2}), kRule));
  // A batch norm reads nothing.
  EXPECT_TRUE(IsClean(Hooked({.op = "aten::std", .reads = false}), kRule));
  EXPECT_TRUE(IsClean(Hooked({.op = "aten::max"}), kRule));
}

TEST(ActivationStatisticsTest, IgnoresStatisticsWithGradients) {
  EXPECT_TRUE(IsClean(Hooked({.op = "aten::std", .trains = true}), kRule));
}

// The histograms may be what the program is for.
TEST(ActivationStatisticsTest, IgnoresProgramsThatOnlyInfer) {
  EXPECT_TRUE(IsClean(Hooked({.infers = true}), kRule));
}

TEST(ActivationStatisticsTest, CountsAllTensorsOfOneRunOfOps) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::conv2d", 20'000);
    for (int i = 0; i < 16; ++i) text.Op("aten::histc", 200);
    text.Op("kind=backward sequence=1 MmBackward0", 10'000);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("of 16 tensors per step, 16 histograms"),
            std::string::npos)
      << finding->evidence;
}

TEST(ActivationStatisticsTest, NeedsMostStepsAndAMinimumOfTime) {
  EXPECT_FALSE(IsClean(Hooked({.layers = 4, .in_steps = 3}), kRule));
  EXPECT_TRUE(IsClean(Hooked({.layers = 6, .in_steps = 2}), kRule));
  EXPECT_TRUE(IsClean(Hooked({.us = 20}), kRule));
  EXPECT_FALSE(IsClean(Hooked({.us = 40}), kRule));
}

// What follows the optimizer's step is reported by work-between-steps.
TEST(ActivationStatisticsTest, LeavesWorkBetweenSteps) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::mm", 10'000);
    text.Op("kind=backward sequence=1 MmBackward0", 10'000);
    text.Begin();
    text.Op("aten::_fused_adam_", 200);
    text.EndRange("kind=optimizer Optimizer.step#Adam.step");
    for (int i = 0; i < 4; ++i) {
      text.Op("aten::histc", 2'000);
      text.Op("aten::item", 5);
    }
    text.EndStep();
  }
  const Report report = text.Analyzed();
  EXPECT_TRUE(IsClean(report, kRule));
  EXPECT_NE(Find(report, "work-between-steps"), nullptr);
}

TEST(ActivationStatisticsTest, RemovesKernelsOnAGpu) {
  ComputeText text;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 4; ++i) {
      text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 2'000}});
      text.Op("aten::histc", "", {{"kernelHistogram1D", 500}});
      text.Op("aten::relu", "", {{"vectorized_elementwise_kernel", 100}});
    }
    text.Op("MmBackward0", "", {{"gemm", 100}}, 10, "kind=backward sequence=1");
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.1);
}

}  // namespace
}  // namespace stepscope::monitoring_test
