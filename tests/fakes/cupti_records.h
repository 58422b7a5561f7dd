// Makes activity records by hand: functions that fill in CUPTI's structs, and a
// buffer with CUPTI's layout.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace stepscope {

// Stores records one after the other, 8-byte aligned.
class RecordBuffer {
 public:
  // Adds the first `bytes` bytes of `record`, because older versions' records
  // are shorter.
  template <typename Record>
  RecordBuffer& Add(const Record& record, size_t bytes = sizeof(Record)) {
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes);
    std::memcpy(bytes_.data() + at, &record, bytes);
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  void Truncate(size_t bytes) { bytes_.resize(bytes); }

 private:
  std::vector<uint8_t> bytes_;
};

// Fields that most records share.
struct Where {
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t correlation = 0;
  uint32_t device = 0;
  uint32_t context = 1;
  uint32_t stream = 7;
};

template <typename Record>
Record Blank(CUpti_ActivityKind kind) {
  Record record;
  std::memset(static_cast<void*>(&record), 0, sizeof(record));
  record.kind = kind;
  return record;
}

template <typename Record>
void Put(const Where& where, Record& record) {
  record.start = where.start;
  record.end = where.end;
  record.correlationId = where.correlation;
  record.deviceId = where.device;
  record.contextId = where.context;
  record.streamId = where.stream;
}

inline CUpti_ActivityKernel10 KernelRecord(const Where& where,
                                           const char* name) {
  auto record =
      Blank<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  Put(where, record);
  record.name = name;
  record.gridX = record.gridY = record.gridZ = 1;
  record.blockX = 128;
  record.blockY = record.blockZ = 1;
  record.registersPerThread = 32;
  return record;
}

inline CUpti_ActivityMemcpy6 CopyRecord(const Where& where,
                                        CUpti_ActivityMemcpyKind kind,
                                        CUpti_ActivityMemoryKind from,
                                        CUpti_ActivityMemoryKind to,
                                        uint64_t bytes) {
  auto record = Blank<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
  Put(where, record);
  record.copyKind = static_cast<uint8_t>(kind);
  record.srcKind = static_cast<uint8_t>(from);
  record.dstKind = static_cast<uint8_t>(to);
  record.bytes = bytes;
  return record;
}

inline CUpti_ActivityMemcpyPtoP4 PeerCopyRecord(const Where& where,
                                                uint64_t bytes) {
  auto record = Blank<CUpti_ActivityMemcpyPtoP4>(CUPTI_ACTIVITY_KIND_MEMCPY2);
  Put(where, record);
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  record.srcKind = record.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.flags = 1;
  record.bytes = bytes;
  return record;
}

inline CUpti_ActivityMemset4 MemsetRecord(const Where& where, uint64_t bytes) {
  auto record = Blank<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
  Put(where, record);
  record.bytes = bytes;
  return record;
}

inline CUpti_ActivityAPI CallRecord(CUpti_ActivityKind kind, uint32_t cbid,
                                    uint64_t start, uint64_t end,
                                    uint32_t correlation, uint32_t pid = 100,
                                    uint32_t tid = 101) {
  auto record = Blank<CUpti_ActivityAPI>(kind);
  record.cbid = cbid;
  record.start = start;
  record.end = end;
  record.correlationId = correlation;
  record.processId = pid;
  record.threadId = tid;
  return record;
}

inline CUpti_ActivitySynchronization2 SyncRecord(
    CUpti_ActivitySynchronizationType type, uint64_t start, uint64_t end,
    uint32_t correlation) {
  auto record = Blank<CUpti_ActivitySynchronization2>(
      CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  record.type = type;
  record.start = start;
  record.end = end;
  record.correlationId = correlation;
  record.contextId = 1;
  record.streamId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  record.cudaEventId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  record.cudaEventSyncId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  return record;
}

inline CUpti_ActivityCudaEvent2 EventRecord(uint32_t event, uint32_t stream,
                                            uint32_t correlation) {
  auto record = Blank<CUpti_ActivityCudaEvent2>(CUPTI_ACTIVITY_KIND_CUDA_EVENT);
  record.eventId = event;
  record.streamId = stream;
  record.contextId = 1;
  record.correlationId = correlation;
  return record;
}

// Returns the record of an A100: 108 multiprocessors with 64 warps each.
inline CUpti_ActivityDevice5 DeviceRecord(uint32_t id, const char* name) {
  auto record = Blank<CUpti_ActivityDevice5>(CUPTI_ACTIVITY_KIND_DEVICE);
  record.id = id;
  record.name = name;
  record.globalMemoryBandwidth = 1555200000;
  record.globalMemorySize = uint64_t{40} << 30;
  record.coreClockRate = 1410000;
  record.numMultiprocessors = 108;
  record.numThreadsPerWarp = 32;
  record.maxWarpsPerMultiprocessor = 64;
  record.maxBlocksPerMultiprocessor = 32;
  record.maxSharedMemoryPerMultiprocessor = 164 << 10;
  record.maxRegistersPerMultiprocessor = 65536;
  record.maxRegistersPerBlock = 65536;
  record.maxThreadsPerBlock = 1024;
  record.computeCapabilityMajor = 8;
  record.computeCapabilityMinor = 0;
  record.isCudaVisible = 1;
  return record;
}

// Returns the size of a record of this kind in this CUPTI_API_VERSION, which is
// 18 in CUDA 12.0 and 130500 in CUDA 13.5. Returns 0 for kinds that the fakes
// do not know.
size_t RecordBytesOf(uint32_t kind, uint32_t cupti_version);

// GetNextRecord() with the sizes of RecordBytesOf(), for the fakes and the fuzz
// target.
CUptiResult StepRecord(const uint8_t* buffer, size_t valid_bytes,
                       uint32_t cupti_version, CUpti_Activity** record);

}  // namespace stepscope
