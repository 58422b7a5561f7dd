#include "evidence/missing_rows.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <algorithm>
#include <string>

#include "support/trace_text.h"

namespace stepscope {
namespace {

const Finding* Incomplete(const Report& report) {
  const auto it =
      std::ranges::find(report.findings, "capture-incomplete", &Finding::id);
  return it == report.findings.end() ? nullptr : &*it;
}

std::string Steps(const std::string& op) {
  return "step 0..1000 thread=0 number=0\nstep 1000..2000 thread=0 number=1\n"
         "op 100..900 thread=0 aten::mm\nop 1100..1900 thread=0 " +
         op + "\n";
}

TEST(SignsOfGpuTest, AreOpsThatOnlyGpusHave) {
  EXPECT_EQ(SignsOfGpu(TraceFromText(Steps("aten::cudnn_convolution"))),
            "aten::cudnn_convolution");
  EXPECT_EQ(SignsOfGpu(TraceFromText(Steps("aten::cudnn_is_acceptable"))), "");
  EXPECT_EQ(SignsOfGpu(TraceFromText(Steps("aten::add"))), "");
  EXPECT_EQ(SignsOfGpu(TraceFromText(
                Steps("aten::add") +
                "range 0..9 thread=0 kind=collective nccl:all_reduce\n")),
            "nccl:all_reduce");
}

TEST(SignsOfGpuTest, WithdrawTheGainsOfARecordingOfTheHostOnly) {
  const Report report = Analyze(TraceFromText(Steps("aten::record_stream")));
  const Finding* finding = Incomplete(report);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->status, FindingStatus::kError);
  EXPECT_NE(finding->evidence.find("aten::record_stream"), std::string::npos);
}

TEST(SignsOfGpuTest, ACpuRunIsComplete) {
  EXPECT_EQ(Incomplete(Analyze(TraceFromText(Steps("aten::add")))), nullptr);
}

TEST(ActivitiesLaunchedBeforeTest, CountsWhatRanBeforeAnyRecordedLaunch) {
  const Trace trace = TraceFromText(R"(
    runtime_call 500..510 thread=0 correlation=1 cudaLaunchKernel
    kernel 0..100 stream=7 k
    kernel 100..200 stream=7 k
    kernel 200..600 stream=20 k
    kernel 600..700 stream=7 correlation=1 k
    kernel 700..800 stream=7 k
  )");
  EXPECT_EQ(ActivitiesLaunchedBefore(trace, 0), 3);
  EXPECT_EQ(ActivitiesLaunchedBefore(trace, 1), 0);
}

TEST(ActivitiesLaunchedBeforeTest, IsZeroWhereNoLaunchWasRecorded) {
  const Trace trace = TraceFromText("kernel 0..100 stream=7 k\n");
  EXPECT_EQ(ActivitiesLaunchedBefore(trace, 0), 0);
}

}  // namespace
}  // namespace stepscope
