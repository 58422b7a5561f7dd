// Tests behaviour of the real CUPTI that the plain fake does not have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "buffer_pool.h"
#include "collectors/cupti/collector_fixture.h"

namespace stepscope::cupti_unkind_test {
namespace {

using testing::HasSubstr;

class UnkindCuptiTest : public AnyCupti {
 protected:
  void QueueCall(uint32_t cbid, uint32_t correlation,
                 CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_RUNTIME) {
    const uint64_t now = fake_.ClockNow();
    fake_.Queue(CallRecord(kind, cbid, now, now + 500, correlation));
  }
  // Queues a launch of a graph with three nodes: a kernel, a copy and a memset.
  void QueueGraph(uint32_t correlation) {
    QueueCall(kGraphLaunch, correlation);
    const uint64_t now = fake_.ClockNow() + 1000;
    const Where where = {
        .start = now, .end = now + 100, .correlation = correlation};
    auto kernel = KernelRecord(where, "node");
    kernel.graphId = 5;
    kernel.graphNodeId = 500;
    fake_.Queue(kernel);
    auto copy = CopyRecord(where, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD,
                           CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                           CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 8);
    copy.graphId = 5;
    fake_.Queue(copy);
    auto memset = MemsetRecord(where, 8);
    memset.graphId = 5;
    fake_.Queue(memset);
  }
  static constexpr uint32_t kLaunch = 211, kGraphLaunch = 311, kSync = 131;
};
INSTANTIATE_TEST_SUITE_P(Cuda, UnkindCuptiTest,
                         testing::ValuesIn(kCuptiVersions), NameOfVersion);

TEST_P(UnkindCuptiTest, BuffersThatComeLateAreStillInTheWindow) {
  fake_.SetLateness(std::chrono::milliseconds(10));
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueCall(kLaunch, 1);
  QueueKernel(1);
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.kernels()[0].call, 0u);
  EXPECT_TRUE(trace.losses().empty());
}

TEST_P(UnkindCuptiTest, ManyThreadsHaveTheirCallsInOneTrace) {
  auto collector = Make({.max_buffer_bytes = 64 << 12, .buffer_bytes = 4096});
  ASSERT_TRUE(collector->Start().ok());
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 50; ++i) {
        QueueCall(kLaunch, 1 + t * 50 + i);
        QueueKernel(1 + t * 50 + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Trace trace = StopAndBuild(*collector);
  EXPECT_EQ(trace.runtime_calls().size(), 200u);
  ASSERT_EQ(trace.kernels().size(), 200u);
  for (const Kernel& kernel : trace.kernels()) EXPECT_NE(kernel.call, kNone);
  EXPECT_TRUE(trace.losses().empty());
}

TEST_P(UnkindCuptiTest, AKernelWithoutAnEndIsCountedNotShown) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel(1);
  const uint64_t now = fake_.ClockNow();
  fake_.QueueRunning(KernelRecord({.start = now, .correlation = 2}, "long"));
  fake_.Queue(KernelRecord({.correlation = 3}, "no times at all"));
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.kernels()[0].correlation, 1);
  EXPECT_EQ(LossCount(trace, "cupti-no-times"), 2);
}

TEST_P(UnkindCuptiTest, ADriftingClockIsFollowed) {
  fake_.SetClockDrift(5e-3);
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  const int64_t before = NowNs();
  const uint64_t now = fake_.ClockNow();  // 200 us ahead by now
  fake_.Queue(
      KernelRecord({.start = now, .end = now + 1000, .correlation = 1}, "k"));
  const int64_t after = NowNs();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_GT(trace.kernels()[0].begin_ns, before - 100'000);
  EXPECT_LT(trace.kernels()[0].begin_ns, after + 100'000);
  EXPECT_NE(LossDetail(trace, "cupti-clock-drift"), "");
}

TEST_P(UnkindCuptiTest, AClockThatStepsIsSaid) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel(1);
  fake_.SetClockOffset(250'000'000);
  QueueKernel(2);
  const Trace trace = StopAndBuild(*collector);
  EXPECT_EQ(trace.kernels().size(), 2u);
  EXPECT_THAT(LossDetail(trace, "cupti-clock-drift"), HasSubstr("diverged"));
}

TEST_P(UnkindCuptiTest, LostRecordsAreCounted) {
  fake_.LoseEvery(10, /*counted=*/true);
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  for (int i = 0; i < 100; ++i) QueueKernel(i);
  const Trace trace = StopAndBuild(*collector);
  EXPECT_EQ(trace.kernels().size(), 90u);
  EXPECT_EQ(LossCount(trace, "cupti-dropped"), 10);
}

TEST_P(UnkindCuptiTest, PollsThatFindNothingLeaveNoTrace) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  for (uint32_t i = 0; i < 1000; ++i) {
    const uint64_t now = fake_.ClockNow();
    QueueCall(/*cudaEventQuery*/ 136, i);
    // Older records do not say whether the event was ready.
    if (fake_.version() < 26) continue;
    auto poll =
        SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, now,
                   now + 100, i);
    poll.returnValue = 600;
    fake_.Queue(poll);
  }
  QueueKernel(1);
  auto recording = collector->Stop();
  ASSERT_TRUE(recording.ok());
  // If the library can leave polls out, they take no memory either.
  if (fake_.version() >= 26) {
    EXPECT_LE(ProcessPool().blocks_in_use(), 1);
  }
  TraceBuilder builder;
  (*recording)->AddTo(builder, ClockMap(begin_, ReadClock()), SlotLog());
  const Trace trace = builder.Build();
  EXPECT_TRUE(trace.syncs().empty());
  EXPECT_TRUE(trace.runtime_calls().empty());
}

TEST_P(UnkindCuptiTest, AfterTheWindowOthersGetPollsAgain) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  EXPECT_EQ(fake_.records_polls(), fake_.version() < 26);
  (void)collector->Stop();
  EXPECT_TRUE(fake_.records_polls());
}

TEST_P(UnkindCuptiTest, TheWorkOfAGraphNeverBelongsToAnotherCall) {
  auto collector = Make();
  for (int session = 1; session <= 3; ++session) {
    SCOPED_TRACE("session " + std::to_string(session));
    ASSERT_TRUE(collector->Start().ok());
    QueueCall(kLaunch, 99);
    QueueGraph(100);
    QueueCall(kSync, 101);
    const Trace trace = StopAndBuild(*collector);
    ASSERT_EQ(trace.runtime_calls().size(), 3u);
    ASSERT_EQ(trace.kernels().size(), 1u);
    ASSERT_EQ(trace.copies().size(), 1u);
    ASSERT_EQ(trace.memsets().size(), 1u);
    const bool confused =
        session > 1 && fake_.version() >= 130000 && fake_.version() < 130101;
    const auto launch = static_cast<RowId>(
        std::find_if(
            trace.runtime_calls().begin(), trace.runtime_calls().end(),
            [](const RuntimeCall& c) { return c.correlation == 100; }) -
        trace.runtime_calls().begin());
    EXPECT_EQ(trace.kernels()[0].call, confused ? kNone : launch);
    EXPECT_EQ(trace.copies()[0].call, confused ? kNone : launch);
    EXPECT_EQ(trace.memsets()[0].call, confused ? kNone : launch);
    EXPECT_EQ(LossCount(trace, "cupti-wrong-graph-launch"), confused ? 3 : 0);
    if (confused) {
      EXPECT_THAT(LossDetail(trace, "cupti-wrong-graph-launch"),
                  HasSubstr("This process uses the CUPTI of CUDA " +
                            CudaVersionOf(fake_.version())));
    }
  }
}

// The call that the work names lies before the window, but the work does not.
TEST_P(UnkindCuptiTest, TheWorkOfAGraphIsNotClippedWithAnotherCall) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  (void)StopAndBuild(*collector);
  ASSERT_TRUE(collector->Start().ok());
  QueueCall(kLaunch, 99);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const int64_t window_begin = NowNs();
  QueueGraph(100);
  auto recording = collector->Stop();
  ASSERT_TRUE(recording.ok());
  TraceBuilder builder;
  (*recording)->AddTo(builder, ClockMap(begin_, ReadClock()), SlotLog());
  const Trace trace = builder.Build(
      {.window_begin_ns = window_begin, .window_end_ns = NowNs() + 1'000'000});
  EXPECT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.copies().size(), 1u);
  EXPECT_EQ(trace.memsets().size(), 1u);
}

// Two threads return from a CUDA call at the same moment: Finalize() on one
// thread waits for the callback on the other.
TEST_P(UnkindCuptiTest, ADetachmentStopsNoOtherThread) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  (void)collector->Stop();
  collector.reset();
  std::thread other;
  fake_.DuringFinalize([&] {
    other = std::thread([&] { fake_.ReenterCallback(); });
    // The other thread is in its callback or has left it.
    while (fake_.callbacks_entered() < 1) std::this_thread::yield();
  });
  fake_.ProgramCalls();
  if (other.joinable()) other.join();
  EXPECT_EQ(fake_.finalized(), Detachments(1));
  EXPECT_FALSE(fake_.finalize_hung());
  EXPECT_FALSE(fake_.finalized_subscribed());
  ExpectNothingLeftBehind();
}

// CUPTI must not be detached while a call of it runs, such as the one that
// prepares the detachment.
TEST_P(UnkindCuptiTest, ACallDuringThePreparationDoesNotDetach) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  (void)collector->Stop();
  fake_.DuringEnableDomain([&] {
    std::thread([&] { fake_.ProgramCalls(); }).join();
    EXPECT_EQ(fake_.finalized(), 0);
    EXPECT_TRUE(fake_.subscribed());
  });
  collector.reset();
  EXPECT_EQ(fake_.finalized(), 0);
  fake_.ProgramCalls();
  EXPECT_EQ(fake_.finalized(), Detachments(1));
}

TEST_P(UnkindCuptiTest, AProgramOfDriverCallsAloneIsDetachedToo) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  (void)collector->Stop();
  collector.reset();
  fake_.ProgramCalls(307, CUPTI_CB_DOMAIN_DRIVER_API);
  EXPECT_EQ(fake_.finalized(), Detachments(1));
}

// First ours, then torch.profiler, then ours again, in the order that
// docs/gpu.md lists.
TEST_P(UnkindCuptiTest, OursThenTorchsThenOursWorksIfTorchLetsGo) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel(1);
  EXPECT_EQ(StopAndBuild(*collector).kernels().size(), 1u);
  fake_.HoldBy("CUPTI for Kineto");  // torch takes CUPTI between our windows
  const absl::Status held = collector->Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(held));
  fake_.HoldBy("");  // TEARDOWN_CUPTI=1
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel(2);
  EXPECT_EQ(StopAndBuild(*collector).kernels().size(), 1u);
}

TEST_P(UnkindCuptiTest, TorchsMonitorIsNamed) {
  fake_.HoldBy("CUPTI for torch-cupti-monitor");
  auto collector = Make();
  EXPECT_THAT(Message(collector->Start()),
              HasSubstr("the monitor of torch.profiler._cupti"));
  fake_.HoldBy("");
  fake_.UseNewerFamily(true);  // allows other monitors
  const absl::Status started = collector->Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(started));
  if (fake_.version() >= 130200) {
    EXPECT_THAT(Message(started), HasSubstr("torch.profiler._cupti"));
  }
  ExpectNothingLeftBehind();
}

TEST_P(UnkindCuptiTest, AVersionNobodyHasSeenIsReadWithANote) {
  FakeCupti newer(130600);
  auto sources = Sources();
  sources.cupti = [&]() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
    return newer.Api();
  };
  auto collector = MakeCuptiCollector({.detach_at_end = false}, sources);
  ASSERT_TRUE(collector->Start().ok());
  const auto now = static_cast<uint64_t>(NowNs());
  newer.Queue(
      KernelRecord({.start = now, .end = now + 1000, .correlation = 1}, "k"));
  const Trace trace = StopAndBuild(*collector);
  EXPECT_EQ(trace.kernels().size(), 1u);
  EXPECT_THAT(LossDetail(trace, "cupti-newer-than-known"),
              HasSubstr("CUDA 13.6 is newer"));
}

}  // namespace
}  // namespace stepscope::cupti_unkind_test
