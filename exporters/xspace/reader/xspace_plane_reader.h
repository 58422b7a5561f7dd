// Reads the parts of an XSpace: planes with their names, lines, events and
// stats. xspace_rows_reader.h interprets them. Texts point into the bytes of
// the file.
//
// The length of a name and its number of stats are bounded. An event refers to
// its name by number, so a hostile file could have a million events of a few
// bytes that all use one huge name, and each would cost as much as the name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/whole_file.h"
#include "xspace/reader/wire_reader.h"

namespace stepscope {

// The most bytes read of a name or of an event's text: several times the
// longest kernel name of CUTLASS.
inline constexpr size_t kMostXNameBytes = 4096;
// The most stats read of a name. XLA writes about 20.
inline constexpr size_t kMostXNameStats = 64;

// One stat, with its reference to a text resolved.
struct XStatField {
  std::string_view name;
  std::string_view text;  // string, bytes or reference
  int64_t integer = 0;    // any number; a real one without its fraction
  double real = 0;
  bool is_text = false;
};

struct XLineField {
  int64_t id = 0;
  std::string_view name;
  int64_t begin_ns = 0;  // what the events' offsets count from
  std::string_view bytes;
  bool has_events = false;
};

struct XEventField {
  std::string_view name;
  std::string_view display_name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::vector<XStatField> stats;  // the event's, then those of its name

  // Returns the first stat of this name, or nullptr.
  const XStatField* stat(std::string_view wanted) const;
  std::string_view text(std::string_view wanted) const;
  std::optional<int64_t> integer(std::string_view wanted) const;
};

class XPlaneReader {
 public:
  // Why an event is left out.
  enum class Skip : uint8_t { kNone, kDamaged, kNegative, kBadTime, kCounted };

  // Reads all of a plane but its events. The reader and its lines are valid as
  // long as `plane` and `file`.
  XPlaneReader(std::string_view plane, const WholeFile& file);

  int64_t id() const { return id_; }
  std::string_view name() const { return name_; }
  // The number of damaged names, plus 1 if the plane itself is damaged.
  int64_t damaged_parts() const { return damaged_parts_; }
  // The number of names with more text or stats than are read.
  int64_t cut_names() const { return cut_names_; }
  bool has_names() const { return !event_names_.empty(); }
  size_t line_count() const { return lines_.size(); }
  // Reads all of a line but its events. Returns false if its bytes are damaged;
  // the fields before the damage are read even then.
  bool ReadLine(size_t index, XLineField* line) const;
  // Calls `use` with the bytes of each event of a line.
  template <typename Use>
  void ForEachEvent(const XLineField& line, Use use) const {
    ReleaseBehind behind(file_, line.bytes);
    WireReader reader(line.bytes);
    while (reader.Next()) {
      if (reader.field() != kEventsField ||
          reader.type() != WireReader::Type::kBytes) {
        continue;
      }
      use(reader.bytes());
      behind.Passed(reader.bytes().data());
    }
  }
  // Reads one event of `line` into `event`, whose stats are overwritten.
  Skip ReadEvent(const XLineField& line, std::string_view bytes,
                 XEventField* event) const;
  // The plane's own stats.
  std::vector<XStatField> stats() const;

 private:
  static constexpr uint32_t kEventsField = 4;
  struct EventName {
    std::string_view name;
    std::string_view display_name;
    std::vector<std::string_view> stats;
  };
  void ReadEventName(std::string_view entry);
  void ReadStatName(std::string_view entry);
  bool ReadStat(std::string_view bytes, XStatField* stat) const;

  const WholeFile& file_;
  int64_t id_ = 0;
  std::string_view name_;
  std::vector<std::string_view> lines_;
  std::vector<std::string_view> stats_;
  std::unordered_map<int64_t, EventName> event_names_;
  std::unordered_map<int64_t, std::string_view> stat_names_;
  int64_t damaged_parts_ = 0;
  int64_t cut_names_ = 0;
};

}  // namespace stepscope
