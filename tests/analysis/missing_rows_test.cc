#include "evidence/missing_rows.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <algorithm>
#include <string>

#include "device/backlog.h"
#include "support/trace_text.h"
#include "words/labels.h"

namespace stepscope::missing_rows_test {
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

// Each sign names the device: calls of its runtime, memory on it, or an op that
// only it has.
TEST(UnseenAcceleratorTest, IsNamedByEachOfItsSigns) {
  const std::string steps = Steps("aten::add");
  const auto name = [](const std::string& text) {
    return UnseenAccelerator(TraceFromText(text));
  };
  EXPECT_EQ(name("device vendor=Meta MTIA\n" + steps +
                 "runtime_call 1..2 thread=0 Launch\n"),
            "MTIA");
  EXPECT_EQ(name(steps + "allocation 5 bytes=64 device_type=12 device=0\n"),
            "XPU");
  EXPECT_EQ(name(Steps("npu::npu_fusion_attention")), "NPU");
  EXPECT_EQ(name("run backend=hccl\n" + steps), "NPU or HPU");
}

TEST(UnseenAcceleratorTest, IsNoneOnCpusAndWhereWorkWasRecorded) {
  const std::string steps = Steps("aten::add");
  EXPECT_EQ(UnseenAccelerator(TraceFromText(steps)), "");
  // The machine has such a device, but nothing shows that the program uses it.
  EXPECT_EQ(UnseenAccelerator(
                TraceFromText("device vendor=Intel Intel Max 1550\n" + steps)),
            "");
  EXPECT_EQ(UnseenAccelerator(TraceFromText(
                "device vendor=Intel XPU\n" + steps +
                "runtime_call 1..2 thread=0 correlation=1 Launch\n"
                "kernel 3..5 correlation=1 gemm\n")),
            "");
}

TEST(UnseenAcceleratorTest, AMachineWithAGpuIsNotCalledCpuOnly) {
  const std::string steps = Steps("aten::add");
  EXPECT_EQ(MachineInWords(Analyze(TraceFromText(steps))), "CPU only");
  EXPECT_EQ(MachineInWords(Analyze(
                TraceFromText("device NVIDIA A100-PG509-200\n" + steps))),
            "no GPU work recorded");
}

TEST(UnseenAcceleratorTest, GetsItsNameInTheTitleAndNoAdvice) {
  const Report report =
      Analyze(TraceFromText("device vendor=Meta MTIA\n" + Steps("aten::add") +
                            "runtime_call 1..2 thread=0 Launch\n"));
  EXPECT_EQ(report.accelerator, "MTIA");
  const std::string text = ToText(report, {});
  EXPECT_EQ(text.find("CPU only"), std::string::npos) << text;
  EXPECT_NE(text.find("MTIA (only the host was recorded)"), std::string::npos)
      << text;
  for (const Finding& finding : report.findings) {
    EXPECT_EQ(finding.id, "capture-incomplete");
  }
  ASSERT_NE(Incomplete(report), nullptr);
  EXPECT_EQ(Incomplete(report)->status, FindingStatus::kError);
  EXPECT_NE(Incomplete(report)->evidence.find("MTIA"), std::string::npos);
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

TEST(ActivitiesLaunchedBeforeTest, IsZeroWhereTheFirstStepLaunchesNothing) {
  const Trace trace = TraceFromText(R"(
    kernel 0..100 stream=7 k
    runtime_call 500..510 thread=0 correlation=1 cudaLaunchKernel
    kernel 600..700 stream=7 correlation=1 k
  )");
  EXPECT_EQ(ActivitiesLaunchedBefore(trace, 0, 500), 1);
  EXPECT_EQ(ActivitiesLaunchedBefore(trace, 0, 499), 0);
}

TEST(ActivitiesLaunchedBeforeTest, IsZeroWhereNoLaunchWasRecorded) {
  const Trace trace = TraceFromText("kernel 0..100 stream=7 k\n");
  EXPECT_EQ(ActivitiesLaunchedBefore(trace, 0), 0);
}

}  // namespace
}  // namespace stepscope::missing_rows_test
