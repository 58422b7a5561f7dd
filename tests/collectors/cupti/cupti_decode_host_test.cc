#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectors/cupti/decode_fixture.h"

namespace stepscope::cupti_decode_host_test {
namespace {

constexpr uint32_t kLaunch = 211;        // cudaLaunchKernel
constexpr uint32_t kGetDevice = 90;      // cudaGetDevice
constexpr uint32_t kDriverLaunch = 307;  // cuLaunchKernel

TEST(CuptiCallTest, NameThreadTimesAndReturnCodeArrive) {
  auto record = CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, kLaunch, 100, 250, 17,
                           4000, 4001);
  record.returnValue = 2;
  const Decoded decoded = Decode(RecordBuffer().Add(record));
  ASSERT_EQ(decoded.trace.runtime_calls().size(), 1u);
  const RuntimeCall& call = decoded.trace.runtime_calls()[0];
  EXPECT_EQ(decoded.trace.name(call.name), "cudaLaunchKernel");
  EXPECT_EQ(call.begin_ns, Ours(100));
  EXPECT_EQ(call.end_ns, Ours(250));
  EXPECT_EQ(call.correlation, 17);
  EXPECT_EQ(call.return_code, 2);
  EXPECT_FALSE(call.is_driver);
  const Thread& thread = decoded.trace.threads()[call.thread];
  EXPECT_EQ(thread.pid, 4000);
  EXPECT_EQ(thread.tid, 4001);
}

TEST(CuptiCallTest, AKernelFindsTheCallThatLaunchedIt) {
  const Decoded decoded = Decode(
      RecordBuffer()
          .Add(KernelRecord({.start = 300, .end = 400, .correlation = 5}, "k"))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, kLaunch, 100, 250, 5)));
  EXPECT_EQ(decoded.trace.kernels()[0].call, 0u);
}

TEST(CuptiCallTest, CallsNotWorthRecordingAreLeftOutUnlessAllAreWanted) {
  const RecordBuffer buffer =
      RecordBuffer()
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, kGetDevice, 1, 2, 1))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, kLaunch, 3, 4, 2));
  EXPECT_EQ(Decode(buffer).trace.runtime_calls().size(), 1u);
  EXPECT_TRUE(Decode(buffer).trace.losses().empty());  // by choice: no loss
  EXPECT_EQ(Decode(buffer, {.all_calls = true}).trace.runtime_calls().size(),
            2u);
}

TEST(CuptiCallTest, ADriverCallInsideARuntimeCallIsTheSameCall) {
  const Decoded decoded = Decode(
      RecordBuffer()
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_DRIVER, kDriverLaunch, 110, 140,
                          5))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, kLaunch, 100, 150, 5))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_DRIVER, kDriverLaunch, 200, 210,
                          6)));
  ASSERT_EQ(decoded.trace.runtime_calls().size(), 2u);
  EXPECT_FALSE(decoded.trace.runtime_calls()[0].is_driver);
  EXPECT_EQ(decoded.trace.runtime_calls()[1].correlation, 6);
  EXPECT_TRUE(decoded.trace.runtime_calls()[1].is_driver);
  EXPECT_EQ(decoded.trace.name(decoded.trace.runtime_calls()[1].name),
            "cuLaunchKernel");
}

TEST(CuptiCallTest, AnIdWithoutANameIsKeptAsUnknown) {
  const Decoded decoded = Decode(
      RecordBuffer()
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 9000, 1, 2, 1))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 4000000000u, 3, 4, 2)));
  ASSERT_EQ(decoded.trace.runtime_calls().size(), 2u);
  for (const RuntimeCall& call : decoded.trace.runtime_calls()) {
    EXPECT_EQ(decoded.trace.name(call.name), "unknown runtime call");
  }
}

TEST(CuptiCallTest, OneStillOpenIsCounted) {
  const Decoded decoded = Decode(
      RecordBuffer()
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, kLaunch, 5, 0, 1))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, kLaunch, 5, 4, 2)));
  EXPECT_TRUE(decoded.trace.runtime_calls().empty());
  EXPECT_EQ(decoded.result.no_times, 1);
  EXPECT_EQ(decoded.result.reversed_times, 1);
}

TEST(CuptiSyncTest, EachTypeHasItsName) {
  const std::vector<std::pair<CUpti_ActivitySynchronizationType, std::string>>
      types = {
          {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, "Event Sync"},
          {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT,
           "Stream Wait Event"},
          {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
           "Stream Sync"},
          {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE,
           "Context Sync"},
          {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN, "Unknown Sync"}};
  for (const auto& [type, name] : types) {
    const Decoded decoded =
        Decode(RecordBuffer().Add(SyncRecord(type, 10, 20, 3)));
    ASSERT_EQ(decoded.trace.syncs().size(), 1u);
    const Sync& sync = decoded.trace.syncs()[0];
    EXPECT_EQ(decoded.trace.name(sync.name), name);
    EXPECT_EQ(sync.begin_ns, Ours(10));
    EXPECT_EQ(sync.end_ns, Ours(20));
    EXPECT_EQ(sync.correlation, 3);
    EXPECT_EQ(sync.stream, -1);
    EXPECT_EQ(sync.wait_on_stream, -1);
  }
}

TEST(CuptiSyncTest, ItsStreamAndDeviceAreKnown) {
  auto sync = SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
                         10, 20, 3);
  sync.streamId = 13;
  sync.contextId = 9;
  auto context = Blank<CUpti_ActivityContext3>(CUPTI_ACTIVITY_KIND_CONTEXT);
  context.contextId = 9;
  context.deviceId = 2;
  const Decoded decoded = Decode(RecordBuffer().Add(sync).Add(context));
  EXPECT_EQ(decoded.trace.syncs()[0].stream, 13);
  EXPECT_EQ(decoded.trace.syncs()[0].device, 2);
}

TEST(CuptiSyncTest, WithoutContextRecordsTheDeviceComesFromItsWork) {
  auto sync = SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
                         10, 20, 3);
  sync.contextId = 4;
  const Decoded decoded = Decode(RecordBuffer().Add(sync).Add(
      KernelRecord({.start = 1, .end = 2, .device = 3, .context = 4}, "k")));
  EXPECT_EQ(decoded.trace.syncs()[0].device, 3);
}

// Call 10 records event 8 on stream 7, and call 30 records it on stream 20.
class CuptiWaitTest : public testing::Test {
 protected:
  Decoded WaitBy(uint32_t correlation, uint64_t sync_id,
                 uint32_t version = 130001) {
    auto early = EventRecord(8, 7, 10);
    auto late = EventRecord(8, 20, 30);
    auto other = EventRecord(9, 21, 35);
    early.cudaEventSyncId = 100;
    late.cudaEventSyncId = 101;
    auto wait =
        SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, 50,
                   60, correlation);
    wait.cudaEventId = 8;
    wait.cudaEventSyncId = sync_id;
    const auto bytes = [&](uint32_t kind) {
      return RecordBytesOf(kind, version);
    };
    return Decode(RecordBuffer()
                      .Add(wait, bytes(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION))
                      .Add(late, bytes(CUPTI_ACTIVITY_KIND_CUDA_EVENT))
                      .Add(other, bytes(CUPTI_ACTIVITY_KIND_CUDA_EVENT))
                      .Add(early, bytes(CUPTI_ACTIVITY_KIND_CUDA_EVENT)),
                  {.version = version});
  }
};

TEST_F(CuptiWaitTest, CuptisOwnNumberDecides) {
  const Decoded decoded = WaitBy(/*correlation=*/40, /*sync_id=*/100);
  EXPECT_EQ(decoded.trace.syncs()[0].wait_on_stream, 7);
  EXPECT_EQ(decoded.trace.syncs()[0].wait_on_record_correlation, 10);
}

TEST_F(CuptiWaitTest, WithoutItTheLatestRecordBeforeTheWaitDoes) {
  EXPECT_EQ(WaitBy(40, 0).trace.syncs()[0].wait_on_stream, 20);
  EXPECT_EQ(WaitBy(31, 0).trace.syncs()[0].wait_on_stream, 20);
  EXPECT_EQ(WaitBy(20, 0).trace.syncs()[0].wait_on_stream, 7);
}

TEST_F(CuptiWaitTest, ARecordMadeAfterTheWaitIsNotWhatItWaitedFor) {
  EXPECT_EQ(WaitBy(5, 0).trace.syncs()[0].wait_on_stream, -1);
}

TEST_F(CuptiWaitTest, OlderLibrariesHaveNoSuchNumber) {
  EXPECT_EQ(WaitBy(20, 101, /*version=*/22).trace.syncs()[0].wait_on_stream, 7);
}

TEST(CuptiSyncTest, AQueryThatFoundTheEventNotReadyWaitedForNothing) {
  auto query = SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE,
                          10, 20, 3);
  query.returnValue = 600;
  EXPECT_TRUE(Decode(RecordBuffer().Add(query)).trace.syncs().empty());
}

TEST(CuptiOverheadTest, ItsKindAndThreadArrive) {
  auto record = Blank<CUpti_ActivityOverhead3>(CUPTI_ACTIVITY_KIND_OVERHEAD);
  record.start = 10;
  record.end = 30;
  record.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
  record.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  record.objectId.pt.processId = 50;
  record.objectId.pt.threadId = 51;
  auto elsewhere = record;
  elsewhere.start = 20;
  elsewhere.overheadKind = static_cast<CUpti_ActivityOverheadKind>(99 << 16);
  elsewhere.objectKind = CUPTI_ACTIVITY_OBJECT_DEVICE;
  const Decoded decoded = Decode(RecordBuffer().Add(record).Add(elsewhere));
  ASSERT_EQ(decoded.trace.overheads().size(), 2u);
  const Overhead& first = decoded.trace.overheads()[0];
  EXPECT_EQ(decoded.trace.name(first.name), "Buffer Flush");
  EXPECT_EQ(first.end_ns, Ours(30));
  EXPECT_EQ(decoded.trace.threads()[first.thread].tid, 51);
  const Overhead& second = decoded.trace.overheads()[1];
  EXPECT_EQ(decoded.trace.name(second.name), "Unknown Overhead");
  EXPECT_EQ(second.thread, kNone);
}

TEST(CuptiOverheadTest, TheOlderShorterRecordIsRead) {
  auto record = Blank<CUpti_ActivityOverhead3>(CUPTI_ACTIVITY_KIND_OVERHEAD);
  record.start = 10;
  record.end = 30;
  const Decoded decoded =
      Decode(RecordBuffer().Add(record, sizeof(CUpti_ActivityOverhead)),
             {.version = 20});
  EXPECT_EQ(decoded.trace.overheads().size(), 1u);
}

}  // namespace
}  // namespace stepscope::cupti_decode_host_test
