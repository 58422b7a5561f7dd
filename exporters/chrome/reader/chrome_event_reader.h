// ChromeEvent: one event of a Chrome trace as text fields that point into the
// bytes it was read from, and the exact conversions from those texts. Nothing
// is allocated per event.
#pragma once

#include <array>
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
  Field id;        // of a flow

  bool has(ArgKey key) const { return (present >> static_cast<int>(key)) & 1; }
  // The arg, or a Field of kind kNone.
  Field arg(ArgKey key) const {
    return has(key) ? args[static_cast<size_t>(key)] : Field();
  }

  uint64_t present = 0;  // bit per ArgKey; `args` holds older text elsewhere
  std::array<Field, static_cast<size_t>(ArgKey::kCount)> args;
};
static_assert(static_cast<int>(ArgKey::kCount) <= 64);

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

// Whole numbers as JSON numbers or as text; a fraction is cut off.
std::optional<int64_t> ToInteger(const Field& field);
std::optional<double> ToReal(const Field& field);
// Nanoseconds from decimal microseconds ("1.5", "12e3"), exact to the
// nanosecond because no double is involved. Nothing if it is not a number or
// beyond kLargestNs.
std::optional<int64_t> ToNanoseconds(const Field& field);
// The text with JSON's escapes resolved. It points into `scratch` where there
// are escapes, into `text` otherwise.
std::string_view Unescape(std::string_view text, std::string* scratch);

}  // namespace stepscope
