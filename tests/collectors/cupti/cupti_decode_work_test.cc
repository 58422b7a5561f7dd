#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "collectors/cupti/decode_fixture.h"

namespace stepscope::cupti_decode_work_test {
namespace {

constexpr const char* kMangled = "_ZN2at6native6kernelIfEEvT_";

DeviceLimits A100() {
  return {.ordinal = 0,
          .name = "A100",
          .compute_major = 8,
          .compute_minor = 0,
          .sm_count = 108,
          .warp_size = 32,
          .max_threads_per_sm = 2048,
          .max_blocks_per_sm = 32,
          .regs_per_sm = 65536,
          .regs_per_block = 65536,
          .shared_bytes_per_sm = 164 << 10};
}

TEST(CuptiKernelTest, EveryFieldArrives) {
  auto record = KernelRecord({.start = 1000,
                              .end = 4000,
                              .correlation = 42,
                              .device = 0,
                              .context = 3,
                              .stream = 13},
                             kMangled);
  record.gridX = 216;
  record.gridY = 2;
  record.gridZ = 3;
  record.blockX = 64;
  record.blockY = 4;
  record.registersPerThread = 40;
  record.staticSharedMemory = 1024;
  record.dynamicSharedMemory = 2048;
  record.graphId = 5;
  record.graphNodeId = 21474836481;
  record.queued = 400;
  record.submitted = 600;
  const Decoded decoded =
      Decode(RecordBuffer().Add(record), {.devices = {A100()}});

  ASSERT_EQ(decoded.trace.kernels().size(), 1u);
  const Kernel& kernel = decoded.trace.kernels()[0];
  EXPECT_EQ(decoded.trace.name(kernel.name),
            "void at::native::kernel<float>(float)");
  EXPECT_EQ(kernel.begin_ns, Ours(1000));
  EXPECT_EQ(kernel.end_ns, Ours(4000));
  EXPECT_EQ(kernel.correlation, 42);
  EXPECT_EQ(kernel.context, 3);
  EXPECT_EQ(kernel.stream, 13);
  EXPECT_THAT(kernel.grid, testing::ElementsAre(216, 2, 3));
  EXPECT_THAT(kernel.block, testing::ElementsAre(64, 4, 1));
  EXPECT_EQ(kernel.registers_per_thread, 40);
  EXPECT_EQ(kernel.shared_memory_bytes, 3072);
  EXPECT_EQ(kernel.graph, 5);
  EXPECT_EQ(kernel.graph_node, 21474836481);
  EXPECT_EQ(kernel.queued_ns, Ours(400));
  EXPECT_EQ(kernel.submitted_ns, Ours(600));
  EXPECT_FLOAT_EQ(kernel.blocks_per_sm, 12);
  EXPECT_FLOAT_EQ(kernel.warps_per_sm, 96);
  // With 40 registers, 6 blocks of 8 warps fit; 64 warps are the maximum.
  EXPECT_FLOAT_EQ(kernel.occupancy_frac, 0.75);
  EXPECT_TRUE(decoded.result.saw_graphs);
  EXPECT_TRUE(decoded.trace.losses().empty());
}

TEST(CuptiKernelTest, QueueTimesThatWereNotAskedForAreUnknown) {
  const Decoded decoded = Decode(
      RecordBuffer().Add(KernelRecord({.start = 1000, .end = 4000}, "k")));
  EXPECT_EQ(decoded.trace.kernels()[0].queued_ns, -1);
  EXPECT_EQ(decoded.trace.kernels()[0].submitted_ns, -1);
  EXPECT_FALSE(decoded.result.saw_graphs);
}

TEST(CuptiKernelTest, OnAnUnknownDeviceTheOccupancyIsUnknown) {
  const Decoded decoded = Decode(
      RecordBuffer().Add(KernelRecord({.start = 1000, .end = 4000}, "k")));
  EXPECT_EQ(decoded.trace.kernels()[0].occupancy_frac, -1);
  EXPECT_EQ(decoded.trace.kernels()[0].blocks_per_sm, -1);
}

TEST(CuptiKernelTest, ADeviceRecordIsEnoughForTheOccupancy) {
  auto kernel = KernelRecord({.start = 1000, .end = 4000}, "k");
  kernel.gridX = 108;
  const Decoded decoded =
      Decode(RecordBuffer().Add(DeviceRecord(0, "A100")).Add(kernel));
  EXPECT_FLOAT_EQ(decoded.trace.kernels()[0].blocks_per_sm, 1);
  EXPECT_FLOAT_EQ(decoded.trace.kernels()[0].occupancy_frac, 4.0 / 64);
}

TEST(CuptiKernelTest, OneWithoutTimesIsLeftOutAndCounted) {
  const Decoded decoded =
      Decode(RecordBuffer()
                 .Add(KernelRecord({.start = 0, .end = 0}, "unfinished"))
                 .Add(KernelRecord({.start = 9, .end = 0}, "unfinished"))
                 .Add(KernelRecord({.start = 10, .end = 20}, "finished")));
  ASSERT_EQ(decoded.trace.kernels().size(), 1u);
  EXPECT_EQ(decoded.result.no_times, 2);
  EXPECT_EQ(LossCount(decoded.trace, "cupti-no-times"), 2);
}

TEST(CuptiKernelTest, OneThatEndsBeforeItBeginsIsLeftOutAndCounted) {
  const Decoded decoded =
      Decode(RecordBuffer()
                 .Add(KernelRecord({.start = 30, .end = 20}, "back"))
                 .Add(KernelRecord({.start = 30, .end = 30}, "instant")));
  ASSERT_EQ(decoded.trace.kernels().size(), 1u);
  EXPECT_EQ(LossCount(decoded.trace, "cupti-reversed-times"), 1);
}

TEST(CuptiKernelTest, EachVersionOfItsRecordIsRead) {
  const auto record =
      KernelRecord({.start = 100, .end = 300, .correlation = 9}, "k");
  for (const uint32_t version : {19u, 22u, 28u, 130000u, 130001u}) {
    SCOPED_TRACE(version);
    const size_t bytes =
        RecordBytesOf(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, version);
    const Decoded decoded =
        Decode(RecordBuffer().Add(record, bytes).Add(record, bytes),
               {.version = version});
    ASSERT_EQ(decoded.trace.kernels().size(), 2u);
    EXPECT_EQ(decoded.trace.kernels()[1].correlation, 9);
    EXPECT_TRUE(decoded.trace.losses().empty());
  }
}

TEST(CuptiCopyTest, DirectionKindsBytesAndAsyncArrive) {
  auto record = CopyRecord({.start = 100, .end = 900, .correlation = 7},
                           CUPTI_ACTIVITY_MEMCPY_KIND_HTOD,
                           CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE,
                           CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 1 << 20);
  auto async = CopyRecord({.start = 1000, .end = 1900, .correlation = 8},
                          CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
                          CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                          CUPTI_ACTIVITY_MEMORY_KIND_PINNED, 4);
  async.flags = 1;
  const Decoded decoded = Decode(RecordBuffer().Add(record).Add(async));
  ASSERT_EQ(decoded.trace.copies().size(), 2u);
  const Copy& first = decoded.trace.copies()[0];
  EXPECT_EQ(first.source, MemoryKind::kPageable);
  EXPECT_EQ(first.destination, MemoryKind::kDevice);
  EXPECT_EQ(first.bytes, 1 << 20);
  EXPECT_FALSE(first.is_async);
  EXPECT_EQ(first.begin_ns, Ours(100));
  EXPECT_EQ(first.correlation, 7);
  EXPECT_EQ(first.stream, 7);
  EXPECT_EQ(first.name, 0u);  // exporters name copies by their kinds
  const Copy& second = decoded.trace.copies()[1];
  EXPECT_EQ(second.source, MemoryKind::kDevice);
  EXPECT_EQ(second.destination, MemoryKind::kPinned);
  EXPECT_TRUE(second.is_async);
}

TEST(CuptiCopyTest, EachMemoryKindHasItsPlace) {
  const std::vector<std::pair<CUpti_ActivityMemoryKind, MemoryKind>> kinds = {
      {CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, MemoryKind::kPageable},
      {CUPTI_ACTIVITY_MEMORY_KIND_PINNED, MemoryKind::kPinned},
      {CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, MemoryKind::kDevice},
      {CUPTI_ACTIVITY_MEMORY_KIND_ARRAY, MemoryKind::kArray},
      {CUPTI_ACTIVITY_MEMORY_KIND_MANAGED, MemoryKind::kManaged},
      {CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC, MemoryKind::kDevice},
      {CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC, MemoryKind::kManaged}};
  for (const auto& [cupti, ours] : kinds) {
    const Decoded decoded = Decode(RecordBuffer().Add(
        CopyRecord({.start = 1, .end = 2}, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD,
                   cupti, cupti, 1)));
    EXPECT_EQ(decoded.trace.copies()[0].source, ours) << cupti;
    EXPECT_EQ(decoded.trace.copies()[0].destination, ours) << cupti;
  }
}

TEST(CuptiCopyTest, MemoryCuptiCannotPlaceIsReadFromTheDirection) {
  const std::vector<
      std::tuple<CUpti_ActivityMemcpyKind, MemoryKind, MemoryKind>>
      directions = {{CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, MemoryKind::kHost,
                     MemoryKind::kDevice},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, MemoryKind::kDevice,
                     MemoryKind::kHost},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, MemoryKind::kDevice,
                     MemoryKind::kDevice},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, MemoryKind::kHost,
                     MemoryKind::kHost},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_HTOA, MemoryKind::kHost,
                     MemoryKind::kArray},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_ATOH, MemoryKind::kArray,
                     MemoryKind::kHost},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_ATOA, MemoryKind::kArray,
                     MemoryKind::kArray},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_ATOD, MemoryKind::kArray,
                     MemoryKind::kDevice},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOA, MemoryKind::kDevice,
                     MemoryKind::kArray},
                    {CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN, MemoryKind::kUnknown,
                     MemoryKind::kUnknown}};
  for (const auto& [direction, from, to] : directions) {
    const Decoded decoded = Decode(RecordBuffer().Add(CopyRecord(
        {.start = 1, .end = 2}, direction, CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN,
        CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN, 1)));
    EXPECT_EQ(decoded.trace.copies()[0].source, from) << direction;
    EXPECT_EQ(decoded.trace.copies()[0].destination, to) << direction;
  }
}

TEST(CuptiCopyTest, AnOlderShorterRecordIsRead) {
  const auto record = CopyRecord({.start = 100, .end = 200, .correlation = 3},
                                 CUPTI_ACTIVITY_MEMCPY_KIND_DTOD,
                                 CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                                 CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 8);
  const Decoded decoded =
      Decode(RecordBuffer()
                 .Add(record, sizeof(CUpti_ActivityMemcpy5))
                 .Add(record, sizeof(CUpti_ActivityMemcpy5)),
             {.version = 22});
  EXPECT_EQ(decoded.trace.copies().size(), 2u);
}

TEST(CuptiCopyTest, PeerCopiesAreCopiesOfDeviceMemory) {
  const Decoded decoded = Decode(RecordBuffer().Add(PeerCopyRecord(
      {.start = 5, .end = 8, .correlation = 4, .device = 1}, 4096)));
  ASSERT_EQ(decoded.trace.copies().size(), 1u);
  const Copy& copy = decoded.trace.copies()[0];
  EXPECT_EQ(copy.bytes, 4096);
  EXPECT_EQ(copy.device, 1);
  EXPECT_EQ(copy.source, MemoryKind::kDevice);
  EXPECT_EQ(copy.correlation, 4);
  EXPECT_TRUE(copy.is_async);
}

TEST(CuptiMemsetTest, BytesAndPlaceArrive) {
  const Decoded decoded = Decode(RecordBuffer().Add(MemsetRecord(
      {.start = 5, .end = 8, .correlation = 4, .stream = 20}, 4096)));
  ASSERT_EQ(decoded.trace.memsets().size(), 1u);
  EXPECT_EQ(decoded.trace.memsets()[0].bytes, 4096);
  EXPECT_EQ(decoded.trace.memsets()[0].stream, 20);
  EXPECT_EQ(decoded.trace.memsets()[0].begin_ns, Ours(5));
}

TEST(CuptiGraphTest, AGraphRecordedWholeIsDeviceWork) {
  auto record =
      Blank<CUpti_ActivityGraphTrace2>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  Put({.start = 50, .end = 90, .correlation = 6, .stream = 8}, record);
  record.graphId = 77;
  const Decoded decoded = Decode(RecordBuffer().Add(record));
  ASSERT_EQ(decoded.trace.kernels().size(), 1u);
  EXPECT_EQ(decoded.trace.name(decoded.trace.kernels()[0].name), "CUDA graph");
  EXPECT_EQ(decoded.trace.kernels()[0].graph, 77);
  EXPECT_TRUE(decoded.result.saw_graphs);
}

TEST(CuptiBufferTest, RecordsOfSeveralBuffersComeTogether) {
  const Decoded decoded = Decode(std::vector<std::vector<uint8_t>>{
      RecordBuffer().Add(KernelRecord({.start = 30, .end = 40}, "b")).bytes(),
      RecordBuffer().Add(KernelRecord({.start = 10, .end = 20}, "a")).bytes(),
      {}});
  ASSERT_EQ(decoded.trace.kernels().size(), 2u);
  EXPECT_EQ(decoded.trace.name(decoded.trace.kernels()[0].name), "a");
  EXPECT_EQ(decoded.result.records, 2);
  EXPECT_TRUE(decoded.trace.losses().empty());
}

TEST(CuptiBufferTest, KindsNobodyKnowsAreSteppedOverAndCounted) {
  const Decoded decoded =
      Decode(RecordBuffer()
                 .Add(Blank<CUpti_ActivityJit2>(CUPTI_ACTIVITY_KIND_JIT))
                 .Add(KernelRecord({.start = 10, .end = 20}, "a")));
  EXPECT_EQ(decoded.trace.kernels().size(), 1u);
  EXPECT_EQ(LossCount(decoded.trace, "cupti-unknown-kind"), 1);
}

TEST(CuptiBufferTest, AKindCuptiItselfCannotStepOverEndsTheBuffer) {
  const auto before = KernelRecord({.start = 10, .end = 20}, "before");
  auto broken = before;
  broken.kind = static_cast<CUpti_ActivityKind>(9999);
  const Decoded decoded = Decode(std::vector<std::vector<uint8_t>>{
      RecordBuffer().Add(before).Add(broken).Add(before).bytes(),
      RecordBuffer().Add(before).bytes()});
  EXPECT_EQ(decoded.trace.kernels().size(), 2u);  // the next buffer is whole
  EXPECT_EQ(decoded.result.damaged_buffers, 1);
  EXPECT_NE(LossDetail(decoded.trace, "cupti-damaged-buffer"), "");
}

TEST(CuptiBufferTest, EveryTruncationIsReadWithinItsBounds) {
  RecordBuffer whole;
  whole.Add(KernelRecord({.start = 10, .end = 20}, "a"))
      .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 211, 1, 2, 3))
      .Add(MemsetRecord({.start = 5, .end = 8}, 1))
      .Add(KernelRecord({.start = 30, .end = 40}, "b"));
  for (size_t bytes = 0; bytes <= whole.bytes().size(); ++bytes) {
    // A copy of exactly this size, so that the sanitizers catch reads past the
    // end.
    std::vector<uint8_t> cut(whole.bytes().begin(),
                             whole.bytes().begin() + static_cast<long>(bytes));
    const Decoded decoded = Decode(std::vector<std::vector<uint8_t>>{cut});
    EXPECT_LE(decoded.trace.kernels().size(), 2u);
    EXPECT_EQ(decoded.trace.kernels().size() == 2,
              bytes == whole.bytes().size());
  }
}

// A library that steps wrongly must not make the decoder leave the buffer.
class LostApi : public CuptiApi {
 public:
  explicit LostApi(std::vector<std::ptrdiff_t> steps)
      : fake_(130001), api_(fake_.Api()), steps_(std::move(steps)) {}
  CUptiResult GetNextRecord(const uint8_t* buffer, size_t,
                            CUpti_Activity** record) const override {
    if (*record == nullptr) at_ = 0;
    if (at_ == steps_.size()) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(const_cast<uint8_t*>(buffer) +
                                                steps_[at_++]);
    return CUPTI_SUCCESS;
  }
  uint32_t version() const override { return api_->version(); }
  std::string library() const override { return api_->library(); }
  CUptiResult Subscribe(CUpti_SubscriberHandle* s, CUpti_CallbackFunc c,
                        void* u, std::string* h) override {
    return api_->Subscribe(s, c, u, h);
  }
  CUptiResult Unsubscribe(CUpti_SubscriberHandle s) override {
    return api_->Unsubscribe(s);
  }
  CUptiResult EnableDomain(bool on, CUpti_SubscriberHandle s,
                           CUpti_CallbackDomain d) override {
    return api_->EnableDomain(on, s, d);
  }
  CUptiResult GetCallbackName(CUpti_CallbackDomain d, uint32_t id,
                              const char** name) const override {
    return api_->GetCallbackName(d, id, name);
  }
  CUptiResult SetThreadIdType(CUpti_ActivityThreadIdType type) override {
    return api_->SetThreadIdType(type);
  }
  CUptiResult RegisterCallbacks(CUpti_BuffersCallbackRequestFunc r,
                                CUpti_BuffersCallbackCompleteFunc c) override {
    return api_->RegisterCallbacks(r, c);
  }
  CUptiResult Enable(CUpti_ActivityKind k) override { return api_->Enable(k); }
  CUptiResult EnableAndDump(CUpti_ActivityKind k) override {
    return api_->EnableAndDump(k);
  }
  CUptiResult Disable(CUpti_ActivityKind k) override {
    return api_->Disable(k);
  }
  CUptiResult EnableCall(bool on, CUpti_CallbackDomain d,
                         uint32_t id) override {
    return api_->EnableCall(on, d, id);
  }
  CUptiResult EnableLatencyTimestamps(bool on) override {
    return api_->EnableLatencyTimestamps(on);
  }
  CUptiResult FlushAll(uint32_t flag) override { return api_->FlushAll(flag); }
  CUptiResult GetNumDroppedRecords(size_t* d) override {
    return api_->GetNumDroppedRecords(d);
  }
  CUptiResult GetTimestamp(uint64_t* t) const override {
    return api_->GetTimestamp(t);
  }
  CUptiResult Finalize() override { return api_->Finalize(); }
  std::string NameOf(CUptiResult code) const override {
    return api_->NameOf(code);
  }

 private:
  FakeCupti fake_;
  std::unique_ptr<CuptiApi> api_;
  std::vector<std::ptrdiff_t> steps_;
  mutable size_t at_ = 0;
};

TEST(CuptiBufferTest, AStepOutOfTheBufferBackOrNowhereEndsTheWalk) {
  const auto kernel = KernelRecord({.start = 10, .end = 20}, "a");
  const RecordBuffer buffer = RecordBuffer().Add(kernel).Add(kernel);
  const auto size = static_cast<std::ptrdiff_t>(buffer.bytes().size());
  const std::vector<std::vector<std::ptrdiff_t>> walks = {
      {0, size + 8}, {0, 216, 0}, {0, 0}, {-8}, {size + 100}};
  for (const auto& steps : walks) {
    const LostApi api(steps);
    const CuptiBuffer view = {buffer.bytes().data(), buffer.bytes().size()};
    TraceBuilder builder;
    const CuptiDecodeResult result = DecodeCupti(
        {.buffers = {&view, 1},
         .times = PlainTimes(),
         .text = [](const char* text) { return std::string_view(text); }},
        api, builder);
    EXPECT_EQ(result.damaged_buffers, 1);
    EXPECT_LE(result.records, 2);
  }
}

TEST(CuptiBufferTest, ARecordShorterThanAnyVersionIsLeftOutAndCounted) {
  const RecordBuffer buffer =
      RecordBuffer().Add(KernelRecord({.start = 10, .end = 20}, "a"));
  const LostApi api({0, 96});  // claims 96 bytes for the kernel's record
  const CuptiBuffer view = {buffer.bytes().data(), buffer.bytes().size()};
  TraceBuilder builder;
  const CuptiDecodeResult result = DecodeCupti(
      {.buffers = {&view, 1},
       .times = PlainTimes(),
       .text = [](const char* text) { return std::string_view(text); }},
      api, builder);
  EXPECT_EQ(result.short_records, 1);
  AddLosses(result, 130001, builder);
  const Trace trace = builder.Build();
  EXPECT_TRUE(trace.kernels().empty());
  EXPECT_EQ(LossCount(trace, "cupti-short-record"), 1);
}

CUpti_ActivityKernel10 NodeKernel(uint32_t correlation) {
  auto record =
      KernelRecord({.start = 500, .end = 600, .correlation = correlation}, "n");
  record.graphId = 3;
  return record;
}

TEST(GraphLaunchTest, ADriversGraphLaunchIsOne) {
  const Decoded decoded = Decode(
      RecordBuffer()
          .Add(NodeKernel(7))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_DRIVER, 514, 100, 200, 7)));
  ASSERT_EQ(decoded.trace.kernels().size(), 1u);
  EXPECT_EQ(decoded.trace.kernels()[0].call, 0u);
  EXPECT_TRUE(decoded.trace.losses().empty());
}

TEST(GraphLaunchTest, ADriversOtherCallIsNone) {
  const Decoded decoded = Decode(
      RecordBuffer()
          .Add(NodeKernel(7))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_DRIVER, 307, 100, 200, 7)));
  ASSERT_EQ(decoded.trace.kernels().size(), 1u);
  EXPECT_EQ(decoded.trace.kernels()[0].call, kNone);
  EXPECT_EQ(decoded.result.wrong_launches, 1);
}

// The launch may lie before the recording.
TEST(GraphLaunchTest, ACallThatWasNotRecordedIsNoLoss) {
  const Decoded decoded = Decode(RecordBuffer().Add(NodeKernel(7)));
  ASSERT_EQ(decoded.trace.kernels().size(), 1u);
  EXPECT_EQ(decoded.trace.kernels()[0].correlation, 7);
  EXPECT_EQ(decoded.result.wrong_launches, 0);
}

TEST(GraphLaunchTest, WorkOfNoGraphKeepsItsCall) {
  const Decoded decoded = Decode(
      RecordBuffer()
          .Add(KernelRecord({.start = 500, .end = 600, .correlation = 7}, "k"))
          .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 211, 100, 200, 7)));
  EXPECT_EQ(decoded.trace.kernels()[0].call, 0u);
}

}  // namespace
}  // namespace stepscope::cupti_decode_work_test
