#include "device/allocator_calls.h"
#include "rule_testing.h"
#include "support/trace_text.h"

namespace stepscope::memory_test {
namespace {

std::string Us(int64_t begin_us, int64_t end_us) {
  return std::to_string(begin_us * 1000) + ".." + std::to_string(end_us * 1000);
}

// `steps` steps of 10 ms, each with a kernel of 6 ms that starts after 3 ms.
std::string Steps(int steps = 3) {
  std::string text;
  for (int i = 0; i < steps; ++i) {
    const int64_t base = i * 10'000;
    text += "step " + Us(base, base + 10'000) +
            " thread=0 number=" + std::to_string(i) + "\n";
    text += "runtime_call " + Us(base + 3'000, base + 3'005) +
            " thread=0 correlation=" + std::to_string(i + 1) +
            " cudaLaunchKernel\nkernel " + Us(base + 3'010, base + 9'010) +
            " correlation=" + std::to_string(i + 1) + " gemm\n";
  }
  return text;
}
Report Of(const std::string& text) { return Analyze(TraceFromText(text)); }

// One op in each step allocates for `us` and releases for 50 us.
std::string Churn(int64_t us, const char* release = "cudaFree") {
  std::string text = Steps();
  for (int i = 0; i < 3; ++i) {
    const int64_t at = i * 10'000 + 1'000;
    text += "op " + Us(at - 20, at + us + 80) + " thread=0 aten::empty\n" +
            "runtime_call " + Us(at, at + us) + " thread=0 cudaMalloc\n" +
            "runtime_call " + Us(at + us, at + us + 50) + " thread=0 " +
            release + "\n";
  }
  return text;
}

TEST(AllocatorChurnTest, FiresOnReleasesInSteadySteps) {
  const Report report = Of(Churn(600));
  const Finding* finding = Find(report, "allocator-churn");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NE(finding->evidence.find("1.00 cudaMalloc (0.60 ms) and 1.00 "
                                   "cudaFree (0.05 ms) per step. The GPU is "
                                   "idle for 0.65 ms meanwhile. Each release"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->evidence.find("empty_cache"), std::string::npos);
}

TEST(AllocatorChurnTest, AllocationsAloneCountFromOnePerCentOfTheStep) {
  EXPECT_TRUE(IsClean(Of(Churn(40, "cudaGetLastError")), "allocator-churn"));
  EXPECT_FALSE(IsClean(Of(Churn(160, "cudaGetLastError")), "allocator-churn"));
}

TEST(AllocatorChurnTest, NamesEmptyCache) {
  std::string text = Steps();
  for (int i = 0; i < 3; ++i) {
    const int64_t at = i * 10'000 + 1'000;
    text += "runtime_call " + Us(at, at + 400) + " thread=0 cudaFree\n";
  }
  const Report report = Of(text);
  ASSERT_NE(Find(report, "allocator-churn"), nullptr);
  EXPECT_NE(Find(report, "allocator-churn")->fix_python.find("empty_cache"),
            std::string::npos);
}

// One call of `us` between the ops of each step.
std::string EachStep(const char* call, int64_t us) {
  std::string text = Steps();
  for (int i = 0; i < 3; ++i) {
    const int64_t at = i * 10'000 + 1'000;
    text += "runtime_call " + Us(at, at + us) + " thread=0 " + call + "\n";
  }
  return text;
}

TEST(AllocatorChurnTest, LeavesPinnedMemoryToAnotherRule) {
  const Report report = Of(EachStep("cudaHostAlloc", 400));
  EXPECT_TRUE(IsClean(report, "allocator-churn"));
  EXPECT_NE(Find(report, "pin-on-main-thread"), nullptr);
}

TEST(AllocatorChurnTest, NamesTheStreamOrderedAllocator) {
  const Report report = Of(EachStep("cudaMallocAsync", 400));
  const Finding* finding = Find(report, "allocator-churn");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("backend:cudaMallocAsync"),
            std::string::npos);
}

TEST(AllocatorCallTest, IsTheKindThatTheNameSays) {
  EXPECT_EQ(AllocatorCallOf("cudaMalloc"), AllocatorCall::kDevice);
  EXPECT_EQ(AllocatorCallOf("cuMemCreate"), AllocatorCall::kDevice);
  EXPECT_EQ(AllocatorCallOf("hipFree"), AllocatorCall::kDeviceFree);
  EXPECT_EQ(AllocatorCallOf("cuMemUnmap"), AllocatorCall::kDeviceFree);
  EXPECT_EQ(AllocatorCallOf("cudaMallocFromPoolAsync"),
            AllocatorCall::kStreamOrder);
  EXPECT_EQ(AllocatorCallOf("cuMemFreeAsync"), AllocatorCall::kStreamOrder);
  for (const char* pinned :
       {"cudaHostAlloc", "cudaMallocHost", "hipHostMalloc", "cudaFreeHost",
        "cuMemFreeHost", "cudaHostRegister"}) {
    EXPECT_EQ(AllocatorCallOf(pinned), AllocatorCall::kPinned) << pinned;
  }
  for (const char* other : {"cudaLaunchKernel", "cudaMemcpyAsync",
                            "cuMemcpyHtoD_v2", "cudaDeviceSynchronize"}) {
    EXPECT_EQ(AllocatorCallOf(other), std::nullopt) << other;
  }
}

TEST(AllocatorChurnTest, StaysSilentOnFixedShapes) {
  EXPECT_TRUE(IsClean(Of(Steps()), "allocator-churn"));
}

TEST(AllocatorChurnTest, StaysSilentWhileAGraphIsCaptured) {
  std::string text = Churn(600);
  for (int i = 0; i < 3; ++i) {
    text += "runtime_call " + Us(i * 10'000 + 500, i * 10'000 + 510) +
            " thread=0 cudaStreamBeginCapture\n";
  }
  EXPECT_TRUE(IsClean(Of(text), "allocator-churn"));
}

// The allocator's sample at the end of each step, in GB, on a device of 100 GB.
std::string Samples(double allocated, double reserved, double growth = 0,
                    int retries = 0) {
  std::string text = Steps();
  for (int i = 0; i < 3; ++i) {
    const auto gb = [](double size) {
      return std::to_string(static_cast<int64_t>(size * 1e9));
    };
    text += "device_sample " + std::to_string(i * 10'000'000 + 9'500'000) +
            " step=" + std::to_string(i) + " total_bytes=" + gb(100) +
            " allocated_bytes=" + gb(allocated) +
            " reserved_bytes=" + gb(reserved + i * growth) +
            " alloc_retries=" + std::to_string(i == 1 ? retries : 0) + "\n";
  }
  return text;
}

TEST(FragmentationTest, FiresOnARetry) {
  const Report report = Of(Samples(50, 60, 0, 1));
  const Finding* finding = Find(report, "fragmentation");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->status, FindingStatus::kWarning);
  EXPECT_EQ(finding->gain_kind, GainKind::kNone);
}

TEST(FragmentationTest, FiresWhereUnusedMemoryStillGrows) {
  EXPECT_NE(Find(Of(Samples(55, 82, 1)), "fragmentation"), nullptr);
  EXPECT_TRUE(IsClean(Of(Samples(55, 76, 1)), "fragmentation"));  // 78 % in use
  EXPECT_TRUE(IsClean(Of(Samples(65, 82, 1)), "fragmentation"));  // 19 % unused
}

TEST(FragmentationTest, StaysSilentOnALargeIdleCache) {
  EXPECT_TRUE(IsClean(Of(Samples(20, 95)), "fragmentation"));
}

TEST(FragmentationTest, SeesARetryInTheCalls) {
  std::string text = Steps();
  text += "op " + Us(1'000, 2'000) + " thread=0 aten::empty\n" +
          "runtime_call " + Us(1'100, 1'200) + " thread=0 cudaMalloc\n" +
          "runtime_call " + Us(1'200, 1'300) + " thread=0 cudaFree\n" +
          "runtime_call " + Us(1'300, 1'400) + " thread=0 cudaMalloc\n";
  EXPECT_NE(Find(Of(text), "fragmentation"), nullptr);
}

// With cudnn.benchmark, a convolution that tries its algorithms empties the
// cache and allocates its workspace.
TEST(FragmentationTest, IgnoresASearchForAlgorithms) {
  const std::string calls = "runtime_call " + Us(1'200, 1'300) +
                            " thread=0 cudaFree\n" + "runtime_call " +
                            Us(1'300, 1'400) + " thread=0 cudaMalloc\n";
  const std::string op = "op " + Us(1'000, 2'000) + " thread=0 ";
  EXPECT_EQ(Find(Of(Steps() + op + "aten::cudnn_convolution\n" + calls),
                 "fragmentation"),
            nullptr);
  EXPECT_NE(Find(Of(Steps() + op + "aten::mm\n" + calls), "fragmentation"),
            nullptr);
}

TEST(FragmentationTest, CannotLookWithoutMemoryEvents) {
  EXPECT_NE(WhySkipped(Of(Steps()), "fragmentation"), "");
  EXPECT_NE(WhySkipped(Of(Steps()), "near-oom"), "");
  EXPECT_NE(WhySkipped(Of(Steps()), "memory-headroom"), "");
}

TEST(NearOomTest, FiresAboveNinetyPerCentIfTensorsUseIt) {
  const Report report = Of(Samples(88, 92));
  const Finding* finding = Find(report, "near-oom");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->status, FindingStatus::kWarning);
  EXPECT_TRUE(IsClean(Of(Samples(88, 89)), "near-oom"));
  EXPECT_TRUE(IsClean(Of(Samples(84, 92)), "near-oom"));
}

TEST(NearOomTest, StaysSilentOnMemoryThatIsOnlyCached) {
  EXPECT_TRUE(IsClean(Of(Samples(40, 92)), "near-oom"));
}

TEST(NearOomTest, ComesBehindTheFindingsThatCostTime) {
  std::string text = Samples(88, 92);
  for (int i = 0; i < 3; ++i) {
    const int64_t at = i * 10'000 + 1'000;
    text += "runtime_call " + Us(at, at + 1'500) + " thread=0 cudaFree\n";
  }
  const Report report = Of(text);
  ASSERT_NE(Find(report, "allocator-churn"), nullptr);
  ASSERT_NE(Find(report, "near-oom"), nullptr);
  EXPECT_LT(Find(report, "allocator-churn"), Find(report, "near-oom"));
}

// Tensors use 10 GB between the steps and up to `peak` GB within them, on a
// device of 100 GB.
std::string Events(double peak) {
  std::string text = Steps() + "device ordinal=0 memory_bytes=100000000000 X\n";
  for (int i = 0; i < 3; ++i) {
    const int64_t base = i * 10'000'000;
    const auto at = [&](int64_t us, double gb) {
      text += "allocation " + std::to_string(base + us * 1000) +
              " thread=0 bytes=1 device_type=1 device=0 "
              "total_allocated_bytes=" +
              std::to_string(static_cast<int64_t>(gb * 1e9)) + "\n";
    };
    at(4'000, peak);
    at(9'000, 10);
  }
  return text;
}

TEST(MemoryHeadroomTest, IsANoteOnly) {
  const Report report = Of(Events(20));  // (90 - 10) / (20 - 10) = 8
  const Finding* finding = Find(report, "memory-headroom");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
  EXPECT_EQ(finding->status, FindingStatus::kOk);
  EXPECT_NE(finding->evidence.find("a batch 8 times as large"),
            std::string::npos)
      << finding->evidence;
}

TEST(MemoryHeadroomTest, BeginsAtTwice) {
  EXPECT_NE(Find(Of(Events(49)), "memory-headroom"), nullptr);
  EXPECT_TRUE(IsClean(Of(Events(51)), "memory-headroom"));
}

// `throttled` of 20 samples are throttled. The kernels of the last two of six
// steps take `slower` times as long.
Report Throttle(int throttled, double slower, int bit = 4) {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    const int64_t base = i * 10'000;
    text += "step " + Us(base, base + 10'000) +
            " thread=0 number=" + std::to_string(i) + "\n";
    text +=
        "runtime_call " + Us(base + 100, base + 105) +
        " thread=0 correlation=" + std::to_string(i + 1) +
        " cudaLaunchKernel\nkernel " +
        Us(base + 200,
           base + 200 + static_cast<int64_t>(8'000 * (i >= 4 ? slower : 1))) +
        " correlation=" + std::to_string(i + 1) + " gemm\n";
  }
  for (int i = 0; i < 20; ++i) {
    text += "device_sample " + std::to_string(i * 3'000'000) +
            " sm_clock_mhz=1500 throttle_reasons=" +
            std::to_string(i < throttled ? bit : 1) + "\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(ClockThrottleTest, FiresWhereALimitSlowsKernelsDown) {
  const Report report = Throttle(10, 1.1);
  const Finding* finding = Find(report, "clock-throttle");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("10 of 20 samples"), std::string::npos);
  EXPECT_NE(finding->evidence.find("10 % longer"), std::string::npos);
  EXPECT_NEAR(finding->gain.expected_ms, 0.8, 0.01);
}

TEST(ClockThrottleTest, NeedsTenPerCentOfTheSamplesAndThreeOfDrift) {
  EXPECT_TRUE(IsClean(Throttle(1, 1.1), "clock-throttle"));
  EXPECT_FALSE(IsClean(Throttle(2, 1.1), "clock-throttle"));
  EXPECT_TRUE(IsClean(Throttle(10, 1.029), "clock-throttle"));
  EXPECT_FALSE(IsClean(Throttle(10, 1.031), "clock-throttle"));
}

// Bit 32: software thermal slowdown.
TEST(ClockThrottleTest, HeatIsAReason) {
  const Report report = Throttle(10, 1.1, 32);
  const Finding* finding = Find(report, "clock-throttle");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("heat in 10"), std::string::npos);
}

TEST(ClockThrottleTest, IdleClocksAreNoThrottling) {
  EXPECT_TRUE(IsClean(Throttle(20, 1.1, 1), "clock-throttle"));
}

TEST(ClockThrottleTest, CannotLookWithoutSamples) {
  EXPECT_NE(WhySkipped(Of(Steps()), "clock-throttle"), "");
}

}  // namespace
}  // namespace stepscope::memory_test
