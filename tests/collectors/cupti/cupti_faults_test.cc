// Makes every CUPTI call fail in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "buffer_pool.h"
#include "collectors/cupti/collector_fixture.h"

namespace stepscope::cupti_faults_test {
namespace {

using testing::HasSubstr;

class CuptiFaultsTest : public AnyCupti {
 protected:
  // Checks that a window after the fault works.
  void ExpectAGoodWindow(Collector& collector) {
    fake_.FailNothing();
    const absl::Status started = collector.Start();
    ASSERT_TRUE(started.ok()) << Message(started);
    QueueKernel(kGood);
    const Trace trace = StopAndBuild(collector);
    // Records left by a failed flush arrive with this window, which clips them.
    EXPECT_EQ(std::count_if(trace.kernels().begin(), trace.kernels().end(),
                            [](const Kernel& kernel) {
                              return kernel.correlation == kGood;
                            }),
              1);
    EXPECT_TRUE(trace.losses().empty());
    ExpectNothingLeftBehind();
  }
  static constexpr uint32_t kGood = 4711;
};

INSTANTIATE_TEST_SUITE_P(Cuda, CuptiFaultsTest,
                         testing::ValuesIn(kCuptiVersions), NameOfVersion);

TEST_P(CuptiFaultsTest, WhicheverCallFailsTheNextWindowIsGood) {
  // Counts the calls that a whole window makes.
  {
    auto collector = Make({.detach_at_end = false});
    ASSERT_TRUE(collector->Start().ok());
    QueueKernel();
    (void)StopAndBuild(*collector);
  }
  const int calls = fake_.call_count();
  ASSERT_GT(calls, 35);
  for (int n = 1; n <= calls; ++n) {
    for (const CUptiResult code :
         {CUPTI_ERROR_UNKNOWN, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES}) {
      SCOPED_TRACE("call " + std::to_string(n) + " fails with " +
                   std::to_string(code));
      auto collector = Make({.detach_at_end = false});
      const size_t first_call = fake_.calls().size();
      fake_.FailCall(n, code);
      const absl::Status started = collector->Start();
      if (!started.ok()) {
        // The error says what failed, with CUPTI's code and a remedy.
        EXPECT_THAT(Message(started), HasSubstr("CUPTI: cannot "));
        EXPECT_THAT(Message(started),
                    HasSubstr("(code " + std::to_string(code) + "): "));
        ExpectNothingLeftBehind();
        EXPECT_EQ(ProcessPool().blocks_out(), 0);
      } else {
        QueueKernel();
        const Trace trace = StopAndBuild(*collector);
        // If Start() reports no error, the Trace reports the loss, unless
        // nothing was lost. A switch that cannot be undone stays on, and the
        // next window finds it.
        const auto calls_now = fake_.calls();
        const std::string failed = calls_now[first_call + n - 1];
        if (trace.losses().empty()) {
          EXPECT_THAT(
              failed,
              testing::AnyOf("GetTimestamp", "EnableCall", "EnableAndDump",
                             "EnableAllSyncRecords", "GetNumDroppedRecords"));
          EXPECT_EQ(trace.kernels().size(), 1u);
        }
      }
      fake_.FailNothing();
      ExpectAGoodWindow(*collector);
    }
  }
}

TEST_P(CuptiFaultsTest, ALeavingThatCannotBeCalledOffDoesNotLockUsOut) {
  auto first = Make();
  ASSERT_TRUE(first->Start().ok());
  (void)first->Stop();
  first.reset();  // would detach at the next call
  fake_.FailAll("Unsubscribe", CUPTI_ERROR_UNKNOWN);
  auto second = Make();
  ASSERT_TRUE(second->Start().ok());
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), 0);
  fake_.FailNothing();
  EXPECT_TRUE(StopAndBuild(*second).losses().empty());
  ExpectAGoodWindow(*second);
}

struct Refusal {
  CUptiResult code;
  absl::StatusCode status;
  const char* advice;
};

TEST_P(CuptiFaultsTest, EachRefusalOfKernelsHasItsAdvice) {
  const Refusal refusals[] = {
      {CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, absl::StatusCode::kPermissionDenied,
       "NVreg_RestrictProfilingToAdminUsers=0"},
      {CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES,
       absl::StatusCode::kPermissionDenied, "CAP_SYS_ADMIN"},
      {CUPTI_ERROR_NOT_INITIALIZED, absl::StatusCode::kFailedPrecondition,
       "second copy"},
      {CUPTI_ERROR_NOT_COMPATIBLE, absl::StatusCode::kFailedPrecondition,
       "libfakecupti.so"},
      {CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED, absl::StatusCode::kUnavailable,
       "cannot be profiled"},
      {CUPTI_ERROR_OUT_OF_MEMORY, absl::StatusCode::kResourceExhausted,
       "max_buffer_bytes"},
      {CUPTI_ERROR_UNKNOWN, absl::StatusCode::kInternal, "next"}};
  auto collector = Make();
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.code);
    fake_.FailKind(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, refusal.code);
    const absl::Status started = collector->Start();
    EXPECT_EQ(started.code(), refusal.status);
    EXPECT_THAT(Message(started), HasSubstr("cannot record kernels"));
    EXPECT_THAT(Message(started), HasSubstr(refusal.advice));
    ExpectNothingLeftBehind();
    fake_.FailNothing();
  }
  ExpectAGoodWindow(*collector);
}

TEST_P(CuptiFaultsTest, WhatIsMerelyNiceToHaveIsLeftOutWithANote) {
  fake_.FailKind(CUPTI_ACTIVITY_KIND_ENVIRONMENT, CUPTI_ERROR_NOT_SUPPORTED);
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  const Trace trace = StopAndBuild(*collector);
  EXPECT_EQ(trace.kernels().size(), 1u);
  EXPECT_FALSE(trace.watched(Kind::kDeviceSample));
  EXPECT_TRUE(trace.watched(Kind::kKernel));
  EXPECT_THAT(LossDetail(trace, "cupti-kind-unavailable"),
              HasSubstr("clocks and power"));
}

TEST_P(CuptiFaultsTest, ALibraryThatCannotChooseCallsRecordsThemAll) {
  fake_.FailAll("EnableCall", CUPTI_ERROR_API_NOT_IMPLEMENTED);
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  EXPECT_TRUE(fake_.enabled().contains(CUPTI_ACTIVITY_KIND_RUNTIME));
  EXPECT_TRUE(fake_.enabled().contains(CUPTI_ACTIVITY_KIND_DRIVER));
  const auto now = static_cast<uint64_t>(NowNs());
  fake_.Queue(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 90, now, now + 9, 1));
  fake_.Queue(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 211, now, now + 9, 2));
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.runtime_calls().size(), 1u);  // chosen when decoded
  EXPECT_EQ(trace.name(trace.runtime_calls()[0].name), "cudaLaunchKernel");
  ExpectNothingLeftBehind();
}

TEST_P(CuptiFaultsTest, TheHolderOfTheSubscriptionIsNamed) {
  fake_.HoldBy("CUPTI for Nsight Systems");
  auto collector = Make();
  const absl::Status started = collector->Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(started));
  EXPECT_THAT(Message(started), HasSubstr("\"CUPTI for Nsight Systems\""));
  EXPECT_THAT(Message(started), HasSubstr("(code 39)"));
  // Nothing of the other tool was changed.
  EXPECT_TRUE(fake_.enabled().empty());
  EXPECT_THAT(fake_.calls(),
              testing::Not(testing::Contains("RegisterCallbacks")));
  fake_.HoldBy("");
  ExpectAGoodWindow(*collector);
}

TEST_P(CuptiFaultsTest, AHolderWithoutANameIsDescribed) {
  fake_.FailAll("Subscribe", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_THAT(Message(Make()->Start()), HasSubstr("torch.profiler"));
}

TEST_P(CuptiFaultsTest, NoDriverIsSaidBeforeAnythingElse) {
  auto sources = Sources();
  sources.driver = [] {
    return absl::StatusOr<std::unique_ptr<CudaDriver>>(absl::UnavailableError(
        "CUPTI: no NVIDIA driver found: recording CPU only"));
  };
  int cupti_asked = 0;
  sources.cupti = [&]() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
    ++cupti_asked;
    return fake_.Api();
  };
  auto collector = MakeCuptiCollector({}, sources);
  EXPECT_TRUE(absl::IsUnavailable(collector->Start()));
  EXPECT_EQ(cupti_asked, 0);
  EXPECT_EQ(fake_.call_count(), 0);
}

TEST_P(CuptiFaultsTest, AProgramThatHasNotUsedCudaIsLeftAloneUntilItHas) {
  driver_.in_use = absl::UnavailableError("CUPTI: not used yet");
  auto collector = Make();
  EXPECT_TRUE(absl::IsUnavailable(collector->Start()));
  EXPECT_EQ(fake_.call_count(), 0);
  driver_.in_use = absl::OkStatus();
  ExpectAGoodWindow(*collector);
}

TEST_P(CuptiFaultsTest, WithoutCuptiTheReasonIsPassedOnAndTriedAgain) {
  bool there = false;
  auto sources = Sources();
  sources.cupti = [&]() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
    if (!there)
      return absl::UnavailableError("CUPTI: no libcupti.so was found");
    return fake_.Api();
  };
  auto collector = MakeCuptiCollector({}, sources);
  EXPECT_EQ(Message(collector->Start()), "CUPTI: no libcupti.so was found");
  there = true;
  ExpectAGoodWindow(*collector);
}

TEST_P(CuptiFaultsTest, AFailedFlushIsALossWithTheReason) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  fake_.FailAll("FlushAll", CUPTI_ERROR_UNKNOWN);
  QueueKernel();
  const Trace trace = StopAndBuild(*collector);
  EXPECT_THAT(LossDetail(trace, "cupti-flush-failed"), HasSubstr("(code 999)"));
}

TEST_P(CuptiFaultsTest, AKindThatStaysOnIsALoss) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  fake_.FailAll("Disable", CUPTI_ERROR_UNKNOWN);
  const Trace trace = StopAndBuild(*collector);
  EXPECT_GT(LossCount(trace, "cupti-still-on"), 5);
  EXPECT_FALSE(fake_.subscribed());
}

TEST_P(CuptiFaultsTest, WithoutAClockRecordsHaveNoPlace) {
  fake_.FailAll("GetTimestamp", CUPTI_ERROR_UNKNOWN);
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  const Trace trace = StopAndBuild(*collector);
  EXPECT_TRUE(trace.kernels().empty());
  EXPECT_NE(LossDetail(trace, "cupti-no-clock"), "");
}

TEST_P(CuptiFaultsTest, ACollectorThatDiesInItsWindowLeavesNothing) {
  auto collector = Make({.detach_at_end = false});
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  fake_.Deliver();
  EXPECT_EQ(ProcessPool().blocks_out(), 1);
  collector.reset();
  ExpectNothingLeftBehind();
  EXPECT_EQ(ProcessPool().blocks(), 0);
}

}  // namespace
}  // namespace stepscope::cupti_faults_test
