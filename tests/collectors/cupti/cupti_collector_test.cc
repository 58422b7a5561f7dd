#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/slot_walk.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "buffer_pool.h"
#include "collectors/cupti/collector_fixture.h"

namespace stepscope::cupti_collector_test {
namespace {

using CuptiCollectorTest = AnyCupti;
INSTANTIATE_TEST_SUITE_P(Cuda, CuptiCollectorTest,
                         testing::ValuesIn(kCuptiVersions), NameOfVersion);

TEST_P(CuptiCollectorTest, AKernelOfTheWindowArrivesAtItsTime) {
  fake_.SetClockOffset(5'000'000'000'000);  // CUPTI's epoch is another one
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  const int64_t before = NowNs();
  uint64_t cupti_now = 0;
  ASSERT_EQ(fake_.GetTimestamp(&cupti_now), CUPTI_SUCCESS);
  fake_.Queue(KernelRecord(
      {.start = cupti_now, .end = cupti_now + 2000, .correlation = 1}, "k"));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_NEAR(static_cast<double>(trace.kernels()[0].begin_ns - before), 0,
              1e6);
  EXPECT_NEAR(static_cast<double>(trace.kernels()[0].end_ns -
                                  trace.kernels()[0].begin_ns),
              2000, 100);
}

TEST_P(CuptiCollectorTest, ItSaysWhatItWatched) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  const Trace trace = StopAndBuild(*collector);
  for (const Kind kind : {Kind::kKernel, Kind::kCopy, Kind::kMemset,
                          Kind::kSync, Kind::kRuntimeCall, Kind::kOverhead,
                          Kind::kDeviceMemory, Kind::kDeviceSample}) {
    EXPECT_TRUE(trace.watched(kind)) << KindName(kind);
  }
  EXPECT_FALSE(trace.watched(Kind::kOp));
  EXPECT_TRUE(trace.losses().empty());
}

TEST_P(CuptiCollectorTest, OnlyCallsWorthRecordingAreEnabled) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  EXPECT_TRUE(fake_.call_enabled(CUPTI_CB_DOMAIN_RUNTIME_API, 211));
  EXPECT_TRUE(fake_.call_enabled(CUPTI_CB_DOMAIN_DRIVER_API, 307));
  const bool can_leave_out = fake_.version() >= 23;
  for (const uint32_t query : {90, 136}) {
    EXPECT_NE(fake_.call_enabled(CUPTI_CB_DOMAIN_RUNTIME_API, query),
              can_leave_out);
  }
  (void)collector->Stop();
  EXPECT_FALSE(fake_.call_enabled(CUPTI_CB_DOMAIN_RUNTIME_API, 211));
}

// Restrictions of one window do not affect the next tool.
TEST_P(CuptiCollectorTest, AnotherToolThatRecordsCallsAfterwardsGetsThemAll) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  (void)collector->Stop();
  ASSERT_EQ(fake_.Enable(CUPTI_ACTIVITY_KIND_RUNTIME), CUPTI_SUCCESS);
  EXPECT_TRUE(fake_.call_enabled(CUPTI_CB_DOMAIN_RUNTIME_API, 90));
}

TEST_P(CuptiCollectorTest, AllCallsMeansTheWholeKinds) {
  auto collector = Make({.all_calls = true});
  ASSERT_TRUE(collector->Start().ok());
  EXPECT_TRUE(fake_.enabled().contains(CUPTI_ACTIVITY_KIND_RUNTIME));
  EXPECT_TRUE(fake_.enabled().contains(CUPTI_ACTIVITY_KIND_DRIVER));
  EXPECT_TRUE(fake_.call_enabled(CUPTI_CB_DOMAIN_RUNTIME_API, 90));
  (void)collector->Stop();
}

TEST_P(CuptiCollectorTest, OptionsChooseTheKinds) {
  auto collector = Make({.record_memory = false,
                         .record_environment = false,
                         .whole_graphs = true});
  ASSERT_TRUE(collector->Start().ok());
  const auto enabled = fake_.enabled();
  EXPECT_FALSE(enabled.contains(CUPTI_ACTIVITY_KIND_MEMORY2));
  EXPECT_FALSE(enabled.contains(CUPTI_ACTIVITY_KIND_ENVIRONMENT));
  EXPECT_TRUE(enabled.contains(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
  const Trace trace = StopAndBuild(*collector);
  EXPECT_FALSE(trace.watched(Kind::kDeviceMemory));
  EXPECT_FALSE(trace.watched(Kind::kDeviceSample));
}

TEST_P(CuptiCollectorTest, QueueTimesAreAskedForOnlyWhereWanted) {
  auto plain = Make();
  ASSERT_TRUE(plain->Start().ok());
  (void)plain->Stop();
  EXPECT_THAT(fake_.calls(),
              testing::Not(testing::Contains("EnableLatencyTimestamps")));
  auto timed = Make({.queue_times = true});
  ASSERT_TRUE(timed->Start().ok());
  (void)timed->Stop();
  EXPECT_THAT(fake_.calls(), testing::Contains("EnableLatencyTimestamps"));
}

TEST_P(CuptiCollectorTest, BetweenWindowsNothingIsLeftBehind) {
  auto collector = Make();
  for (int cycle = 0; cycle < 3; ++cycle) {
    ASSERT_TRUE(collector->Start().ok());
    EXPECT_TRUE(fake_.subscribed());
    QueueKernel();
    const Trace trace = StopAndBuild(*collector);
    EXPECT_EQ(trace.kernels().size(), 1u);
    ExpectNothingLeftBehind();
  }
}

TEST_P(CuptiCollectorTest, TheDeviceIsWaitedForBeforeTheFlush) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  (void)collector->Stop();
  EXPECT_EQ(driver_.synchronized, 1);
}

TEST_P(CuptiCollectorTest, ADeviceThatCannotBeWaitedForIsALossNotAnEnd) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  driver_.synchronize = absl::InternalError("CUPTI: cannot wait");
  QueueKernel();
  const Trace trace = StopAndBuild(*collector);
  EXPECT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(LossDetail(trace, "cupti-not-synchronised"), "CUPTI: cannot wait");
}

TEST_P(CuptiCollectorTest, RecordsWithoutABufferAreALossWithAdvice) {
  auto collector = Make({.max_buffer_bytes = 8192, .buffer_bytes = 4096});
  ASSERT_TRUE(collector->Start().ok());
  for (int i = 0; i < 100; ++i) QueueKernel(i);
  const Trace trace = StopAndBuild(*collector);
  const size_t fit = 4096 / RecordBytesOf(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                          fake_.version());
  EXPECT_EQ(trace.kernels().size(), 2 * fit);
  const auto lost = static_cast<int64_t>(100 - 2 * fit);
  const bool discards = fake_.version() < kCuptiTakesNullBuffers;
  EXPECT_EQ(LossCount(trace, "cupti-dropped"), discards ? 0 : lost);
  EXPECT_EQ(LossCount(trace, "cupti-discarded"), discards ? lost : 0);
  EXPECT_EQ(LossCount(trace, "cupti-buffers-full"), discards ? 1 : lost);
  EXPECT_THAT(LossDetail(trace, discards ? "cupti-discarded" : "cupti-dropped"),
              testing::HasSubstr("max_buffer_bytes"));
}

TEST_P(CuptiCollectorTest, WhatWasDroppedBeforeTheWindowIsNotItsLoss) {
  auto collector = Make({.max_buffer_bytes = 4096, .buffer_bytes = 4096});
  ASSERT_TRUE(collector->Start().ok());
  for (int i = 0; i < 100; ++i) QueueKernel(i);
  fake_.FailAll("GetNumDroppedRecords", CUPTI_ERROR_UNKNOWN);
  const Trace first = StopAndBuild(*collector);
  EXPECT_NE(LossDetail(first, "cupti-drops-unknown"), "");
  fake_.FailNothing();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  const Trace second = StopAndBuild(*collector);
  EXPECT_EQ(LossCount(second, "cupti-dropped"), 0);
  EXPECT_EQ(second.kernels().size(), 1u);
}

TEST_P(CuptiCollectorTest, ABufferCuptiKeepsIsCountedAndNeverFreed) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  fake_.KeepBuffers(true);
  const Trace first = StopAndBuild(*collector);
  EXPECT_TRUE(first.kernels().empty());
  EXPECT_EQ(LossCount(first, "cupti-unreturned-buffers"), 1);
  EXPECT_EQ(ProcessPool().blocks_out(), 1);
  collector.reset();
  EXPECT_EQ(ProcessPool().blocks_out(), 1);  // CUPTI still owns the memory

  collector = Make();
  fake_.KeepBuffers(false);
  ASSERT_TRUE(collector->Start().ok());
  const int64_t window_begin = NowNs();
  fake_.ReturnKeptBuffers();
  QueueKernel(2);
  auto recording = collector->Stop();
  ASSERT_TRUE(recording.ok());
  TraceBuilder builder;
  (*recording)->AddTo(builder, ClockMap(begin_, ReadClock()), SlotLog());
  const Trace second = builder.Build(
      {.window_begin_ns = window_begin, .window_end_ns = NowNs() + 1'000'000});
  ASSERT_EQ(second.kernels().size(), 1u);  // the old one is not this window's
  EXPECT_EQ(second.kernels()[0].correlation, 2);
  EXPECT_TRUE(second.losses().empty());
  EXPECT_EQ(ProcessPool().blocks_out(), 0);
}

TEST_P(CuptiCollectorTest, FreeMemoryIsSampledAtStepsButNotTooOften) {
  driver_.free_bytes = 1000;
  driver_.total_bytes = 5000;
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  const int64_t now = NowNs();
  collector->OnStep(3, now);
  collector->OnStep(4, now + 1'000'000);  // a fast loop
  driver_.free_bytes = 900;
  collector->OnStep(5, now + 40'000'000);
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.device_samples().size(), 2u);
  EXPECT_EQ(trace.device_samples()[0].step, 3);
  EXPECT_EQ(trace.device_samples()[0].free_bytes, 1000);
  EXPECT_EQ(trace.device_samples()[0].total_bytes, 5000);
  EXPECT_EQ(trace.device_samples()[1].step, 5);
  EXPECT_EQ(trace.device_samples()[1].free_bytes, 900);
}

TEST_P(CuptiCollectorTest, WithoutAContextOnTheThreadThereIsNoSample) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  collector->OnStep(0, NowNs());
  EXPECT_TRUE(StopAndBuild(*collector).device_samples().empty());
}

TEST_P(CuptiCollectorTest, ARecordingOutlivesItsCollector) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  auto recording = collector->Stop();
  ASSERT_TRUE(recording.ok());
  collector.reset();
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), 0);  // CUPTI still owns the names
  TraceBuilder builder;
  (*recording)->AddTo(builder, ClockMap(begin_, ReadClock()), SlotLog());
  EXPECT_EQ(builder.Build().kernels().size(), 1u);
  recording->reset();
  EXPECT_EQ(fake_.finalized(), 0);
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), Detachments(1));
  ExpectNothingLeftBehind();
  EXPECT_EQ(ProcessPool().blocks(), 0);
}

TEST_P(CuptiCollectorTest, CuptiLeavesOnceAsACallReturns) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  (void)collector->Stop();
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), 0);  // another cycle may follow
  collector.reset();
  for (int i = 0; i < 3; ++i) fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), Detachments(1));
}

TEST_P(CuptiCollectorTest, CuptiStaysWhereItWasAskedTo) {
  auto collector = Make({.detach_at_end = false});
  ASSERT_TRUE(collector->Start().ok());
  (void)collector->Stop();
  collector.reset();
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), 0);
  ExpectNothingLeftBehind();
}

TEST_P(CuptiCollectorTest, CuptiStaysIfItWasNeverUsed) {
  fake_.HoldBy("CUPTI for Nsight");
  auto collector = Make();
  EXPECT_FALSE(collector->Start().ok());
  collector.reset();
  fake_.HoldBy("");
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), 0);
}

TEST_P(CuptiCollectorTest, AnotherProfilerThatCameMeanwhileKeepsIt) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  (void)collector->Stop();
  fake_.HoldBy("CUPTI for torch.profiler");
  collector.reset();
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), 0);
}

TEST_P(CuptiCollectorTest, ANewCollectorCallsTheLeavingOff) {
  auto first = Make();
  ASSERT_TRUE(first->Start().ok());
  (void)first->Stop();
  first.reset();  // would detach at the next call
  auto second = Make();
  ASSERT_TRUE(second->Start().ok());
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), 0);
  QueueKernel();
  EXPECT_EQ(StopAndBuild(*second).kernels().size(), 1u);
}

TEST_P(CuptiCollectorTest, AfterItLeftItComesBack) {
  for (int i = 1; i <= 2; ++i) {
    auto collector = Make();
    ASSERT_TRUE(collector->Start().ok());
    QueueKernel();
    EXPECT_EQ(StopAndBuild(*collector).kernels().size(), 1u);
    collector.reset();
    fake_.ProgramCalls();
    EXPECT_EQ(fake_.finalized(), Detachments(i));
  }
}

using ManyWindowsTest = CuptiCollectorFixture;

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST_F(ManyWindowsTest, AThousandWindowsTakeNoMoreMemoryThanAFew) {
  auto collector = Make({.max_buffer_bytes = 1 << 20, .buffer_bytes = 1 << 16});
  const auto window = [&] {
    ASSERT_TRUE(collector->Start().ok());
    for (int i = 0; i < 1000; ++i) QueueKernel(i);
    const Trace trace = StopAndBuild(*collector);
    ASSERT_EQ(trace.kernels().size(), 1000u);
  };
  for (int i = 0; i < 100; ++i) window();
  const int64_t blocks = ProcessPool().blocks();
  [[maybe_unused]] const int64_t before = ResidentBytes();
  for (int i = 0; i < 1000; ++i) window();
  EXPECT_EQ(ProcessPool().blocks(), blocks);
  // The fake's list of calls grows by about 60 KiB per 10 windows. Our memory
  // must not grow.
#ifndef __SANITIZE_ADDRESS__  // it delays reuse of freed memory
  EXPECT_LT(ResidentBytes() - before, int64_t{16} << 20);
#endif
}

}  // namespace
}  // namespace stepscope::cupti_collector_test
