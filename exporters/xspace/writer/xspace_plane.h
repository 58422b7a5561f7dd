// Writes one plane of an XSpace. The length of a plane precedes it. So that a
// plane is never held in memory, lines make their events twice, once to measure
// and once to write them.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/file_sink.h"

namespace stepscope {

// The stats. Every plane declares all of them with these ids. XProf identifies
// them by name (XStatName).
enum class XStatId : uint8_t {
  kGroupId = 1,
  kStepNum,
  kStepName,
  kCorrelationId,
  kDeviceId,
  kFlow,
  kTfOp,
  kStageId,
  kStageName,
  kStageCategory,
  kKernelDetails,
  kMemcpyDetails,
  kContextId,
  kShape,
  kAllocatorName,
  kBytesAllocated,
  kBytesAvailable,
  kPeakBytesInUse,
  kRequestedBytes,
  kAllocationBytes,
  kAddress,
  kDeviceVendor,
  kGpuDeviceName,
  kClockRate,
  kCoreCount,
  kMemoryBandwidth,
  kMemorySize,
  kComputeMajor,
  kComputeMinor,
  kHloProto,
  kProgramId,
  kProfileStart,
  kProfileStop,
  kSequence,
  kReturnCode,
  kDetail,
  kSeverity,
  kInputs,
  kStack,
  kOccupancy,
  kNote,
  kHloOp,
  kHloModule,
  kFlops,
  kBytesAccessed,
  kGigaflop,
  kFragmentation,
  kPeakTeraflops,
  kOwn,
  kFusedOps,
  kCodeFile,
  kCodeParameters,
  kCounted,
  kCount
};
const char* XStatName(XStatId id);

// The ids of the names of one plane. Texts that a Trace has interned cost an
// array look-up.
class XNames {
 public:
  explicit XNames(const Trace& trace);

  // event_metadata id of a name. `display_name`, if any, is what gets drawn.
  int64_t Event(NameId name);
  int64_t Event(std::string_view name, std::string_view display_name = "");
  // stat_metadata id of a text, for ref_value.
  int64_t Text(NameId text);
  int64_t Text(std::string_view text);

  // event_metadata and stat_metadata of an XPlane, as wire bytes.
  std::string MetadataBytes() const;

 private:
  struct Special {
    std::string name;
    std::string display_name;
  };
  const Trace& trace_;
  int64_t first_special_;  // ids below belong to the names of the Trace
  std::vector<bool> event_used_;
  std::vector<bool> text_used_;
  std::vector<Special> special_events_;
  std::vector<std::string> special_texts_;
  std::unordered_map<std::string, int64_t> event_ids_;
  std::unordered_map<std::string, int64_t> text_ids_;
};

// The bytes of one XEvent.
class XEventBytes {
 public:
  void Start(int64_t metadata_id, int64_t offset_ns, int64_t duration_ns);
  void Int(XStatId stat, int64_t value);
  void Uint(XStatId stat, uint64_t value);
  void Double(XStatId stat, double value);
  // Adds the value of a counter whose name is the text `text_id`.
  void Counter(int64_t text_id, double value);
  void Ref(XStatId stat, int64_t text_id);
  void String(XStatId stat, std::string_view text);
  std::string_view bytes() const { return {bytes_.data(), size_}; }

 private:
  // Returns room for `bytes` more at the end; may reallocate.
  char* Room(size_t bytes);
  void Number(XStatId stat, int value_field, uint64_t value);

  std::vector<char> bytes_;
  size_t size_ = 0;
};

// The size of an XSpace file. XProf parses a file in one piece and protobuf
// accepts at most 2 GiB, so each plane reserves its bytes before it is written.
class XSpaceFile {
 public:
  static constexpr uint64_t kMostBytes = (uint64_t{1} << 31) - (1 << 20);

  explicit XSpaceFile(FileSink& sink, uint64_t most_bytes = kMostBytes)
      : sink_(sink), left_bytes_(most_bytes) {}

  // Reserves `bytes`. False, and nothing is reserved, if there is no room.
  bool Take(uint64_t bytes) {
    if (bytes > left_bytes_) return false;
    left_bytes_ -= bytes;
    return true;
  }
  std::string& block() { return sink_.block(); }
  void Flush() { sink_.Flush(); }
  bool failed() const { return sink_.failed(); }

 private:
  FileSink& sink_;
  uint64_t left_bytes_;
};

struct XLineSource {
  int64_t id = 0;
  std::string name;
  int64_t display_id = 0;
  size_t count = 0;
  // Makes the i-th event. It is called in order and then from 0 again, and must
  // make the same events both times. Events come by begin, longer ones first.
  std::function<void(size_t i, XEventBytes& event)> event;
};

// A stat of the plane itself.
class XPlaneStats {
 public:
  void Uint(XStatId stat, uint64_t value);
  void Double(XStatId stat, double value);
  void String(XStatId stat, std::string_view text);
  std::string_view bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Writes a plane as field 1 of the XSpace. `names` must be those the lines use.
// False, with nothing written, if the file has no room left for it.
bool WriteXPlane(int64_t id, std::string_view plane_name,
                 const std::vector<XLineSource>& lines, const XNames& names,
                 const XPlaneStats& stats, XSpaceFile& file);

}  // namespace stepscope
