// CuptiDecoder: the state of one DecodeCupti() call, such as caches and records
// whose links can be resolved only after all buffers are read. Private to
// cupti_decode*.cc.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cupti_decode.h"
#include "occupancy.h"
#include "pointer_names.h"
#include "record_bytes.h"

namespace stepscope {

// The MemoryKind for a CUpti_ActivityMemoryKind; kUnknown for newer numbers.
MemoryKind MemoryKindOf(uint32_t kind);

class CuptiDecoder {
 public:
  CuptiDecoder(const CuptiRecords& records, const CuptiApi& api,
               TraceBuilder& builder);

  // Goes once through the buffers, and then links the records.
  CuptiDecodeResult Decode();

 private:
  struct Event {  // a cudaEventRecord()
    uint64_t sync_id = 0;
    uint32_t event = 0;
    uint32_t correlation = 0;
    uint32_t stream = 0;
  };
  struct Wait {  // a Sync row without its links
    Sync row;
    uint64_t sync_id = 0;
    uint32_t event = 0;
    uint32_t context = 0;
  };

  void Reserve();
  void Walk(const CuptiBuffer& buffer);
  void One(uint32_t kind, const RecordBytes& bytes);

  // cupti_decode_work.cc: device activities.
  void AddKernel(const RecordBytes& bytes);
  void AddCopy(const RecordBytes& bytes);
  void AddPeerCopy(const RecordBytes& bytes);
  void AddMemset(const RecordBytes& bytes);
  void AddGraph(const RecordBytes& bytes);
  bool Place(uint64_t begin, uint64_t end, DeviceWork& work);
  void AddCapture(Kernel& row);
  void CheckGraphLaunches();

  // cupti_decode_host.cc: calls and waits of host threads.
  void AddCall(bool is_driver, const RecordBytes& bytes);
  void AddSync(const RecordBytes& bytes);
  void AddEvent(const RecordBytes& bytes);
  void AddOverhead(const RecordBytes& bytes);
  void LinkCalls();
  void LinkWaits();
  NameId CallNameOf(bool is_driver, uint32_t id);
  RowId ThreadOf(uint32_t pid, uint32_t tid);

  // cupti_decode_objects.cc: devices, contexts, streams, memory, names.
  void AddDevice(const RecordBytes& bytes);
  void AddContext(const RecordBytes& bytes);
  void AddStream(const RecordBytes& bytes);
  void AddMemory(const RecordBytes& bytes);
  void AddPool(const RecordBytes& bytes);
  void AddEnvironment(const RecordBytes& bytes);
  void AddName(const RecordBytes& bytes);
  void LinkStreams();
  void AddDevices();
  const DeviceLimits& LimitsOf(int32_t device);
  DeviceLimits* DeviceOf(const CUpti_ActivityDevice5& record);

  // Converts a record's times. Returns false and counts the record if a time is
  // missing or they are reversed.
  bool Convert(uint64_t begin, uint64_t end, int64_t* begin_ns,
               int64_t* end_ns);
  // Returns false and counts the record if it has fewer than `needed` bytes.
  bool Has(const RecordBytes& bytes, size_t needed);
  int64_t ToNs(uint64_t cupti_ns) const {
    return records_.times.ToNs(cupti_ns);
  }
  std::string_view TextOf(const char* pointer) const;

  const CuptiRecords& records_;
  const CuptiApi& api_;
  TraceBuilder& builder_;
  CuptiDecodeResult result_;

  PointerNames kernel_names_;
  struct Capture {
    RowId ops = kNone;
    NameId module = 0;
  };
  std::unordered_map<const CapturedAt*, Capture> captures_;
  // [is_driver][call id]; 0: not looked up yet, kSkip: not recorded.
  static constexpr NameId kSkip = 0xffffffff;
  std::vector<NameId> call_names_[2];
  std::vector<std::pair<uint64_t, RowId>> threads_;  // few; by (pid, tid)
  std::vector<DeviceLimits> devices_;                // by ordinal
  bool has_uuids_ = false;  // all devices in devices_ have one
  std::unordered_map<uint32_t, int32_t> device_of_context_;
  uint32_t last_context_ = 0xffffffff;
  std::vector<RuntimeCall> driver_calls_;
  std::vector<uint32_t> runtime_correlations_;
  std::vector<NameId> graph_launch_names_;
  std::vector<uint32_t> graph_launches_;  // their correlation ids
  // Rows of the builder that are work of graphs.
  std::vector<RowId> graph_kernels_;
  std::vector<RowId> graph_copies_;
  std::vector<RowId> graph_memsets_;
  std::vector<Event> events_;
  std::vector<Wait> waits_;
  std::vector<Stream> streams_;
  std::unordered_map<uint32_t, uint32_t> null_stream_of_context_;
  std::unordered_map<uint32_t, NameId> stream_names_;
};

}  // namespace stepscope
