// ChromeEvent: one event of a Chrome trace. Its fields are texts that point
// into the bytes of the file; functions convert them exactly. Nothing is
// allocated per event.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace stepscope {

// The args that have a field in a Trace. All others are skipped.
enum class ArgKey : uint8_t {
  kSequence,
  kForwardThread,
  kInputDims,
  kInputType,
  kInputStrides,
  kConcreteInputs,
  kCallStack,
  kCorrelation,
  kDevice,
  kStream,
  kContext,
  kBytes,
  kGrid,
  kBlock,
  kRegisters,
  kSharedMemory,
  kBlocksPerSm,
  kWarpsPerSm,
  kOccupancy,
  kGraph,
  kGraphNode,
  kPythonId,
  kPythonParent,
  kPythonModule,
  kDeviceType,
  kDeviceId,
  kAddress,
  kMemoryBytes,
  kTotalAllocated,
  kTotalReserved,
  kCollective,
  kDtype,
  kInElements,
  kOutElements,
  kGroupSize,
  kGroupName,
  kGroupDescription,
  kGroupRanks,
  kCollectiveSequence,
  kWaitOnStream,
  kWaitOnRecord,
  kName,
  kKind,
  kTaskType,
  kOurStep,
  kOurRange,
  kOurName,
  kOurDetail,
  kOurDriver,
  kOurReturnCode,
  kOurOccupancy,
  kOurSource,
  kOurDestination,
  kOurAsync,
  kOurDeviceType,
  kOurOnly,
  kOurInputs,
  kOurStack,
  kOurThread,
  kOurQueued,
  kOurSubmitted,
  kOurCounted,
  kCodeFile,
  kCodeParameters,
  kCount
};

struct Field {
  enum class Type : uint8_t { kNone, kText, kScalar, kArray };
  std::string_view text;  // kText: between the quotes, still escaped
  Type type = Type::kNone;
};

struct ChromeEvent {
  Field phase;
  Field category;
  Field name;
  Field pid;
  Field tid;
  Field begin;     // "ts"
  Field duration;  // "dur"
  Field id;        // of a flow event

  bool has(ArgKey key) const { return present[static_cast<size_t>(key)]; }
  // Returns the arg, or a Field of type kNone.
  Field arg(ArgKey key) const {
    return has(key) ? args[static_cast<size_t>(key)] : Field();
  }

  static constexpr auto kArgs = static_cast<size_t>(ArgKey::kCount);
  // Marks which of `args` this event has; the others still hold text of earlier
  // events. Clearing these bits per event is cheaper than clearing the fields.
  std::bitset<kArgs> present;
  std::array<Field, kArgs> args;
};

class ChromeEventParser {
 public:
  ChromeEventParser();
  ~ChromeEventParser();
  ChromeEventParser(const ChromeEventParser&) = delete;
  ChromeEventParser& operator=(const ChromeEventParser&) = delete;

  // Fills `event` from one JSON object; false if `text` is not one. The fields
  // point into `text`. REQUIRES: 64 readable bytes after `text`.
  bool Parse(std::string_view text, ChromeEvent* event);

 private:
  struct Json;
  std::unique_ptr<Json> json_;
};

// Both read a JSON number or a number in text. ToInteger() drops the fraction.
std::optional<int64_t> ToInteger(const Field& field);
std::optional<double> ToReal(const Field& field);
// Converts decimal microseconds ("1.5", "12e3") to nanoseconds, exactly because
// no double is involved. Returns nothing if the field is not a number or beyond
// kLargestNs.
std::optional<int64_t> ToNanoseconds(const Field& field);
// Returns the text with JSON's escapes resolved. The result points into
// `scratch` if there are escapes, otherwise into `text`.
std::string_view Unescape(std::string_view text, std::string* scratch);

}  // namespace stepscope
