#include "analysis/simulator.h"
#include "rule_testing.h"
#include "support/trace_text.h"

namespace stepscope {
namespace {

TEST(CoresIdleTest, FiresOnOneThreadOfTwo) {
  const Report report = Analyze(Simulate({.ops = Ops(40, 2.5)}).trace);
  const Finding* finding = Find(report, "cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_EQ(finding->gain_is, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 100 - 100 / 1.7, 2);
  EXPECT_NE(finding->fix_cpp.find("at::set_num_threads(2)"), std::string::npos);
}

TEST(CoresIdleTest, StaysSilentWhenThreadsEqualCores) {
  EXPECT_TRUE(IsClean(
      Analyze(Simulate({.ops = Ops(40, 2.5), .threads = 2, .cores = 2}).trace),
      "cores-idle"));
}

TEST(CoresIdleTest, CountsLoaderWorkersAsUsers) {
  EXPECT_TRUE(IsClean(
      Analyze(
          Simulate(
              {.batch_ms = 20, .ops = Ops(40, 2.5), .workers = 1, .cores = 2})
              .trace),
      "cores-idle"));
}

TEST(CoresIdleTest, StaysSilentWhereLittleIsParallel) {
  const auto with_parallel = [](double ms) {
    Loop loop{.ops = {{.name = "aten::nonzero", .ms = 10, .parallel = false},
                      {.ms = ms}}};
    return Analyze(Simulate(loop).trace);
  };
  EXPECT_TRUE(IsClean(with_parallel(4.0), "cores-idle"));   // 28 %
  EXPECT_TRUE(Promises(with_parallel(4.6), "cores-idle"));  // 31 %
}

TEST(CoresIdleTest, CannotLookWithoutThreadsOrCores) {
  EXPECT_NE(WhyBlind(Analyze(TraceFromText(R"(
    step 0..1000000 thread=0
    op 0..900000 thread=0 aten::mm
  )")),
                     "cores-idle"),
            "");
}

TEST(CoresIdleTest, IsNotAskedOfGpuRuns) {
  EXPECT_NE(WhyBlind(Analyze(TraceFromText(R"(
    run usable_cores=8
    step 0..1000000 thread=0
    runtime_call 0..10 thread=0 correlation=1 cudaLaunchKernel
    kernel 10..900000 correlation=1 k
  )")),
                     "cores-idle")
                .find("without a GPU"),
            std::string::npos);
}

}  // namespace
}  // namespace stepscope
