// Tests contended-cores: the threads of a CPU-only run lack cores.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rule_testing.h"
#include "support/trace_text.h"

namespace stepscope::contention_test {
namespace {

// Three steps of 100 ms on `cores` cores: 80 ms in an op and 20 ms between ops.
// In each step, the training thread has no core for `delay_ms`. If `collects`,
// the garbage collector runs for 10 of the 20 ms.
Report Beside(int threads, int cores, int64_t delay_ms,
              const std::string& fields = "", bool collects = false,
              const std::string& loader = "") {
  std::string text =
      "run usable_cores=" + std::to_string(cores) + "\n" + loader;
  for (int i = 0; i < 3; ++i) {
    const int64_t begin = i * 100'000'000;
    const auto span = [&](int64_t length) {
      return std::to_string(begin) + ".." + std::to_string(begin + length);
    };
    const std::string step = " step=" + std::to_string(i);
    text +=
        "step " + span(100'000'000) + " thread=0 number=" + std::to_string(i) +
        "\nop " + span(80'000'000) + " thread=0 aten::mm\nsettings " +
        std::to_string(begin) + step +
        " intra_op_threads=" + std::to_string(threads) + "\nhost_usage " +
        span(100'000'000) + step +
        " run_delay_ns=" + std::to_string(delay_ms * 1'000'000) + fields + "\n";
    if (collects) {
      text += "range " + std::to_string(begin + 85'000'000) + ".." +
              std::to_string(begin + 95'000'000) + " thread=0 Python GC\n";
    }
  }
  return Analyze(TraceFromText(text));
}

TEST(ContendedCoresTest, FiresWhereOthersTakeTheCores) {
  const Report report = Beside(2, 2, 50, " involuntary_switches=12");
  const Finding* finding = Find(report, "contended-cores");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NEAR(finding->gain.expected_ms, 50, 1e-6);
  EXPECT_NE(finding->evidence.find("50.0 ms of the 100 ms step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("12.0 times a step"), std::string::npos)
      << finding->evidence;
}

// The headline names the cause; the time comes off what the thread was doing.
TEST(ContendedCoresTest, IsACauseOfItsOwn) {
  const Report report = Beside(2, 2, 50);
  EXPECT_NEAR(report.time_split_ms.at("contended"), 50, 1e-6);
  EXPECT_NEAR(report.time_split_ms.at("compute"), 40, 1e-6);
  EXPECT_NEAR(report.time_split_ms.at("host_code"), 10, 1e-6);
  EXPECT_NE(ToText(report, {}).find("waiting for a free core 50.0"),
            std::string::npos)
      << ToText(report, {});
  EXPECT_NE(ToText(report, {}).find("has to wait for cores"),
            std::string::npos);
}

// Python threads of the program, or ops of another thread, take the cores. What
// the run leaves of 2 cores is less than the 50 ms that the thread waited.
TEST(ContendedCoresTest, DoesNotBlameOthersForTheRunsFurtherThreads) {
  const Finding own =
      *Find(Beside(2, 2, 50, " process_cpu_ns=190000000"), "contended-cores");
  EXPECT_NE(own.evidence.find("keeps 1.90 of 2 cores busy"), std::string::npos)
      << own.evidence;
  EXPECT_EQ(own.evidence.find("other programs"), std::string::npos);
  EXPECT_NE(own.fix_python.find("py-spy"), std::string::npos);
  EXPECT_NEAR(own.gain.expected_ms, 50, 1e-6);
  const Finding others =
      *Find(Beside(2, 2, 50, " process_cpu_ns=140000000"), "contended-cores");
  EXPECT_NE(others.evidence.find("other programs"), std::string::npos);
  // Child processes make batches, and their time is no part of the process's.
  const std::string shared = " process_cpu_ns=140000000 loader_cpu_ns=50000000";
  const std::string loader = "loader kind=processes workers=1\n";
  EXPECT_NE(Find(Beside(1, 2, 50, shared, false, loader), "contended-cores")
                ->evidence.find("further threads"),
            std::string::npos);
}

// One of two cores looks idle, but another thread of the program uses it.
TEST(ContendedCoresTest, LeavesNoCoreIdleThatFurtherThreadsUse) {
  EXPECT_TRUE(
      IsClean(Beside(1, 2, 20, " process_cpu_ns=195000000"), "cores-idle"));
}

TEST(ContendedCoresTest, MakesOtherFindingsLessCertain) {
  const Finding quiet = *Find(Beside(2, 2, 0, "", true), "gc-pause");
  EXPECT_EQ(quiet.confidence, Confidence::kProven);
  const Finding busy = *Find(Beside(2, 2, 20, "", true), "gc-pause");
  EXPECT_EQ(busy.confidence, Confidence::kStrong);
}

// One of two cores looks idle. Ops could use it only if no other program did.
TEST(ContendedCoresTest, OffersMoreThreadsOnlyTheFreeCores) {
  const Finding quiet = *Find(Beside(1, 2, 0), "cores-idle");
  EXPECT_EQ(quiet.gain_kind, GainKind::kPredicted);
  EXPECT_EQ(quiet.confidence, Confidence::kProven);
  const Report report = Beside(1, 2, 20);
  const Finding* busy = Find(report, "cores-idle");
  ASSERT_NE(busy, nullptr);
  EXPECT_EQ(busy->gain_kind, GainKind::kBound);
  EXPECT_EQ(busy->confidence, Confidence::kHint);
  // Half of the 80 ms in ops, minus the 20 ms that contended-cores bounds.
  EXPECT_NEAR(busy->gain.expected_ms, 20, 1e-6);
  EXPECT_EQ(report.findings.front().id, "contended-cores");
  EXPECT_EQ(busy->settings,
            (std::vector<Setting>{{"intra_op_threads", int64_t{2}}}));
  EXPECT_TRUE(report.plan.ids.empty());
}

TEST(ContendedCoresTest, AdvisesNoThreadsIfWaitsExplainTheGain) {
  const Report report = Beside(1, 2, 45);
  EXPECT_EQ(Find(report, "cores-idle"), nullptr);
  ASSERT_EQ(report.superseded.size(), 1u);
  EXPECT_NE(report.superseded[0].find("contended-cores"), std::string::npos);
}

TEST(ContendedCoresTest, BeginsAtFivePerCentOfTheStep) {
  EXPECT_EQ(Find(Beside(2, 2, 5), "contended-cores")->severity,
            FindingSeverity::kLow);
  const Report report = Beside(2, 2, 4);
  EXPECT_TRUE(IsClean(report, "contended-cores"));
  EXPECT_FALSE(report.time_split_ms.contains("contended"));
}

// The run has one thread more than it has cores, so its threads displace each
// other.
TEST(ContendedCoresTest, IgnoresTheRunsOwnThreads) {
  EXPECT_TRUE(
      IsClean(Beside(2, 2, 50, " loader_workers=1"), "contended-cores"));
  EXPECT_FALSE(
      IsClean(Beside(2, 3, 50, " loader_workers=1"), "contended-cores"));
}

TEST(ContendedCoresTest, NeedsTheNumberOfCores) {
  EXPECT_NE(WhySkipped(Beside(2, -1, 50), "contended-cores").find("cores"),
            std::string::npos);
}

// Three steps of 100 ms as torch.profiler records them: `op` for `op_ms`, and
// tanh for the rest, whose rate is not judged.
Report WithoutDelays(const std::string& op, int64_t op_ms,
                     const std::string& run = "") {
  std::string text = run;
  for (int i = 0; i < 3; ++i) {
    const int64_t begin = i * 100'000'000;
    const int64_t end = begin + 100'000'000;
    const int64_t middle = begin + op_ms * 1'000'000;
    text += "step " + std::to_string(begin) + ".." + std::to_string(end) +
            " thread=0 number=" + std::to_string(i) + "\nop " +
            std::to_string(begin) + ".." + std::to_string(middle) +
            " thread=0 " + op + "\nop " + std::to_string(middle) + ".." +
            std::to_string(end) +
            " thread=0 inputs=(float[64,64]) aten::tanh\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(ContendedCoresTest, SeesOpsThatOneCoreWouldDoFaster) {
  // 2 x 4 MB, at 0.5 GB/s at least: 16 ms.
  const Report report =
      WithoutDelays("inputs=(float[1000,1000]) aten::mul", 80);
  const Finding* finding = Find(report, "contended-cores");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_NEAR(finding->gain.expected_ms, 80 - 16.05, 0.01);
  EXPECT_NE(finding->evidence.find("aten::mul [1000, 1000] takes 80.0 ms"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("set_num_threads"), std::string::npos);
  EXPECT_NE(ToText(report, {}).find("much longer than one core needs"),
            std::string::npos);
}

TEST(ContendedCoresTest, SeesProductsThatOneCoreWouldDoFaster) {
  // 0.1 GFLOP at 2 GFLOP/s take 50 ms, and 1.8 MB at 0.5 GB/s take 3.6 ms.
  const std::string product = "inputs=(float[500,200],float[200,500]) aten::mm";
  EXPECT_NEAR(
      Find(WithoutDelays(product, 90), "contended-cores")->gain.expected_ms,
      90 - 53.65, 0.01);
  EXPECT_TRUE(IsClean(WithoutDelays(product, 55), "contended-cores"));
  // slow-half-products is about these.
  EXPECT_TRUE(IsClean(WithoutDelays("inputs=(c10::Half[500,200],"
                                    "c10::Half[200,500]) aten::mm",
                                    90),
                      "contended-cores"));
}

// An op on few elements has one thread, and other ops than the simple ones may
// be slow for many reasons.
TEST(ContendedCoresTest, JudgesOnlySimpleOpsOnManyElements) {
  EXPECT_TRUE(IsClean(WithoutDelays("inputs=(float[100,100]) aten::mul", 80),
                      "contended-cores"));
  EXPECT_TRUE(IsClean(WithoutDelays("inputs=(float[1000,1000]) aten::sort", 80),
                      "contended-cores"));
  EXPECT_TRUE(IsClean(WithoutDelays("aten::mul", 80), "contended-cores"));
  // Two million products of 2 x 2 matrices are mostly calls.
  EXPECT_TRUE(IsClean(WithoutDelays("inputs=(float[2000000,2,2],"
                                    "float[2000000,2,2]) aten::bmm",
                                    80),
                      "contended-cores"));
}

// Both arguments have 4000 elements, and the result has 16 million.
TEST(ContendedCoresTest, CountsTheElementsOfTheResult) {
  EXPECT_TRUE(IsClean(
      WithoutDelays("inputs=(float[4000,1],float[1,4000]) aten::mul", 80),
      "contended-cores"));
}

// The threads never waited, so the slow numbers are left.
TEST(ContendedCoresTest, NamesDenormalNumbersWhereThreadsHadCores) {
  std::string usage;
  for (int i = 0; i < 3; ++i) {
    const int64_t begin = i * 100'000'000;
    usage += "host_usage " + std::to_string(begin) + ".." +
             std::to_string(begin + 100'000'000) +
             " step=" + std::to_string(i) + " run_delay_ns=0\n";
  }
  const Report report =
      WithoutDelays("inputs=(float[1000,1000]) aten::mul", 80, usage);
  const Finding* finding = Find(report, "contended-cores");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->fix_python.find("set_num_threads"), std::string::npos);
  EXPECT_NE(finding->fix_python.find("set_flush_denormal"), std::string::npos);
}

}  // namespace
}  // namespace stepscope::contention_test
