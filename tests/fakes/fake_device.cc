#include "fakes/fake_device.h"

#include <algorithm>

namespace stepscope {
namespace {

constexpr uint64_t kLaunchNs = 4'000;    // from a call to its work
constexpr uint64_t kShortestNs = 2'000;  // of a kernel
constexpr double kDeviceShare = 0.6;     // of an operator's CPU time
constexpr double kPcieBytesPerNs = 6;    // from pageable memory
constexpr uint64_t kSampleEveryNs = 20'000'000;
// The queue is delivered when it exceeds this, as buffers fill up.
constexpr uint32_t kDeliverEvery = 4'096;

}  // namespace

uint64_t FakeDevice::Run(const Op& op) {
  const auto work = WorkOf(op.name);
  if (work.empty()) return op.end_ns;
  const std::lock_guard lock(mutex_);
  if (!cupti_.enabled().contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) {
    introduced_ = 0;
    return op.end_ns;
  }
  Introduce();
  // The calls share the operator's time, with gaps between them.
  const uint64_t slot = (op.end_ns - op.begin_ns) / (work.size() + 1);
  uint64_t until = op.end_ns;
  for (size_t i = 0; i < work.size(); ++i) {
    const uint64_t begin = op.begin_ns + slot * i + slot / 2;
    const uint64_t end = begin + std::min<uint64_t>(kLaunchNs, slot / 2);
    until = std::max(until, Do(work[i], op, begin, end));
  }
  Sample(op.end_ns);
  if (correlation_ % kDeliverEvery < 4) cupti_.Deliver();
  return until;
}

void FakeDevice::Segment(const Op& op, uint64_t address, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t length = (op.end_ns - op.begin_ns) / 8;
  const uint32_t correlation =
      Made(bytes > 0 ? kMalloc : kFree, op, op.begin_ns + length,
           op.begin_ns + 2 * length);
  auto record = Blank<CUpti_ActivityMemory4>(CUPTI_ACTIVITY_KIND_MEMORY2);
  record.memoryOperationType =
      bytes > 0 ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION
                : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.correlationId = correlation;
  record.address = address;
  record.bytes = static_cast<uint64_t>(bytes > 0 ? bytes : -bytes);
  record.timestamp = op.begin_ns + 2 * length;
  record.processId = op.pid;
  record.contextId = 1;
  cupti_.Queue(record);
}

// Queues the records that CUPTI makes of existing objects when it is enabled.
void FakeDevice::Introduce() {
  if (introduced_ != 0) return;
  introduced_ = 1;
  auto device = DeviceRecord(0, "Fake A100");
  for (int i = 0; i < 16; ++i) device.uuid.bytes[i] = static_cast<char>(i + 1);
  cupti_.Queue(device);
  auto context = Blank<CUpti_ActivityContext3>(CUPTI_ACTIVITY_KIND_CONTEXT);
  context.contextId = 1;
  context.nullStreamId = kStream;
  cupti_.Queue(context);
  for (const uint32_t id : {kStream, kCopyStream}) {
    auto stream = Blank<CUpti_ActivityStream>(CUPTI_ACTIVITY_KIND_STREAM);
    stream.contextId = 1;
    stream.streamId = id;
    stream.flag = id == kStream
                      ? CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL
                      : CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING;
    cupti_.Queue(stream);
  }
}

uint32_t FakeDevice::Made(Call call, const Op& op, uint64_t begin,
                          uint64_t end) {
  const uint32_t correlation = ++correlation_;
  cupti_.Queue(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, call, begin, end,
                          correlation, op.pid, op.tid));
  return correlation;
}

uint64_t FakeDevice::Do(const OpWork& work, const Op& op, uint64_t call_begin,
                        uint64_t call_end) {
  switch (work.kind) {
    case WorkKind::kCopyToDevice:
      return CopyToDevice(op, call_begin, call_end);
    case WorkKind::kCopyToHost:
      return CopyToHost(op, call_begin, call_end);
    case WorkKind::kKernel:
    case WorkKind::kMemset:
      break;
  }
  const bool is_kernel = work.kind == WorkKind::kKernel;
  const uint32_t correlation =
      Made(is_kernel ? kLaunchKernel : kMemsetAsync, op, call_begin, call_end);
  const uint64_t begin = std::max(free_at_, call_end + kLaunchNs);
  const double share = is_kernel ? kDeviceShare * work.share : 0.1;
  const auto took = static_cast<uint64_t>(
      share * static_cast<double>(op.end_ns - op.begin_ns));
  free_at_ = begin + std::max(kShortestNs, took);
  if (is_kernel) {
    Kernel(work, op, correlation, begin, free_at_);
  } else {
    cupti_.Queue(MemsetRecord({.start = begin,
                               .end = free_at_,
                               .correlation = correlation,
                               .stream = kStream},
                              static_cast<uint64_t>(op.bytes)));
  }
  return op.end_ns;
}

void FakeDevice::Kernel(const OpWork& work, const Op& op, uint32_t correlation,
                        uint64_t begin, uint64_t end) {
  auto record = KernelRecord({.start = begin,
                              .end = end,
                              .correlation = correlation,
                              .stream = kStream},
                             work.kernel);
  record.gridX = static_cast<int32_t>(
      std::clamp<int64_t>(op.bytes / 4 / work.block / 4, 1, 1 << 20));
  record.blockX = work.block;
  record.registersPerThread = work.registers;
  record.dynamicSharedMemory = work.shared_bytes;
  record.completed = end;
  cupti_.Queue(record);
}

// Runs on the copy stream; the other stream then waits for it.
uint64_t FakeDevice::CopyToDevice(const Op& op, uint64_t call_begin,
                                  uint64_t call_end) {
  const uint64_t part = (call_end - call_begin) / 3;
  const uint32_t correlation =
      Made(kCopyAsync, op, call_begin, call_begin + part);
  const uint64_t begin = std::max(copies_done_, call_begin + part + kLaunchNs);
  copies_done_ =
      begin + kShortestNs +
      static_cast<uint64_t>(static_cast<double>(op.bytes) / kPcieBytesPerNs);
  auto copy = CopyRecord(
      {.start = begin,
       .end = copies_done_,
       .correlation = correlation,
       .stream = kCopyStream},
      CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE,
      CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, static_cast<uint64_t>(op.bytes));
  copy.flags = 1;
  cupti_.Queue(copy);
  const uint32_t recorded =
      Made(kEventRecord, op, call_begin + part, call_begin + 2 * part);
  cupti_.Queue(EventRecord(1, kCopyStream, recorded));
  const uint32_t waited =
      Made(kStreamWaitEvent, op, call_begin + 2 * part, call_begin + 3 * part);
  auto wait = SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT,
                         call_begin + 2 * part, call_begin + 3 * part, waited);
  wait.streamId = kStream;
  wait.cudaEventId = 1;
  cupti_.Queue(wait);
  free_at_ = std::max(free_at_, copies_done_);
  return op.end_ns;
}

// Copies a number to pageable memory. The host waits for the stream.
uint64_t FakeDevice::CopyToHost(const Op& op, uint64_t call_begin,
                                uint64_t call_end) {
  const uint32_t correlation = Made(kCopyAsync, op, call_begin, call_end);
  const uint64_t begin = std::max(free_at_, call_end + kLaunchNs);
  free_at_ = begin + kShortestNs;
  auto copy = CopyRecord({.start = begin,
                          .end = free_at_,
                          .correlation = correlation,
                          .stream = kStream},
                         CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
                         CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
                         CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, 4);
  copy.flags = 1;
  cupti_.Queue(copy);
  const uint64_t waited = std::max(op.end_ns, free_at_) + kLaunchNs;
  const uint32_t synchronised = Made(kStreamSynchronize, op, call_end, waited);
  auto sync = SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
                         call_end, waited, synchronised);
  sync.streamId = kStream;
  cupti_.Queue(sync);
  return waited;
}

void FakeDevice::Sample(uint64_t now) {
  if (now - sampled_at_ < kSampleEveryNs) return;
  sampled_at_ = now;
  auto record =
      Blank<CUpti_ActivityEnvironment>(CUPTI_ACTIVITY_KIND_ENVIRONMENT);
  record.timestamp = now;
  record.environmentKind = CUPTI_ACTIVITY_ENVIRONMENT_SPEED;
  record.data.speed.smClock = 1410;
  record.data.speed.memoryClock = 1215;
  cupti_.Queue(record);
}

}  // namespace stepscope
