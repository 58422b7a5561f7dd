#include "xspace/reader/xspace_plane_reader.h"

#include <algorithm>

#include "rows/field_values.h"

namespace stepscope {
namespace {

using Type = WireReader::Type;

// Converts picoseconds to whole nanoseconds. Rounds down, also below zero, so
// that nested spans stay nested.
int64_t FloorToNs(int64_t ps) {
  return ps >= 0 ? ps / 1000 : -((-(ps + 1)) / 1000) - 1;
}

// Returns the message under key 2 of a map entry. Sets `damaged` if the entry
// is damaged.
std::string_view ValueOf(std::string_view entry, bool* damaged) {
  std::string_view value;
  WireReader reader(entry);
  while (reader.Next()) {
    if (reader.field() == 2 && reader.type() == Type::kBytes)
      value = reader.bytes();
  }
  *damaged |= reader.damaged();
  return value;
}

// Returns the start of `text`, at most kMostXNameBytes, without splitting a
// UTF-8 character.
std::string_view Bounded(std::string_view text) {
  if (text.size() <= kMostXNameBytes) return text;
  size_t end = kMostXNameBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end);
}

}  // namespace

const XStatField* XEventField::stat(std::string_view wanted) const {
  for (const XStatField& field : stats) {
    if (field.name == wanted) return &field;
  }
  return nullptr;
}

std::string_view XEventField::text(std::string_view wanted) const {
  const XStatField* field = stat(wanted);
  return field == nullptr ? std::string_view() : field->text;
}

std::optional<int64_t> XEventField::integer(std::string_view wanted) const {
  const XStatField* field = stat(wanted);
  if (field == nullptr || field->is_text) return std::nullopt;
  return field->integer;
}

// Names may follow the lines that use them, so events are read only after the
// whole plane has been walked once.
XPlaneReader::XPlaneReader(std::string_view plane, const WholeFile& file)
    : file_(file) {
  std::vector<std::string_view> event_entries;
  WireReader reader(plane);
  while (reader.Next()) {
    const bool is_bytes = reader.type() == Type::kBytes;
    if (reader.field() == 1 && reader.type() == Type::kVarint)
      id_ = reader.integer();
    if (!is_bytes) continue;
    if (reader.field() == 2) name_ = reader.bytes();
    if (reader.field() == 3) lines_.push_back(reader.bytes());
    if (reader.field() == 4) event_entries.push_back(reader.bytes());
    if (reader.field() == 5) ReadStatName(reader.bytes());
    if (reader.field() == 6) stats_.push_back(reader.bytes());
  }
  damaged_parts_ += reader.damaged() ? 1 : 0;
  for (std::string_view entry : event_entries) ReadEventName(entry);
}

void XPlaneReader::ReadEventName(std::string_view entry) {
  int64_t id = 0;
  EventName name;
  bool damaged = false;
  bool is_cut = false;
  const auto bounded = [&](std::string_view text) {
    is_cut |= text.size() > kMostXNameBytes;
    return Bounded(text);
  };
  WireReader reader(ValueOf(entry, &damaged));
  while (reader.Next()) {
    if (reader.field() == 1 && reader.type() == Type::kVarint)
      id = reader.integer();
    if (reader.type() != Type::kBytes) continue;
    if (reader.field() == 2) name.name = bounded(reader.bytes());
    if (reader.field() == 4) name.display_name = bounded(reader.bytes());
    if (reader.field() != 5) continue;
    if (name.stats.size() == kMostXNameStats) {
      is_cut = true;
    } else {
      name.stats.push_back(reader.bytes());
    }
  }
  damaged_parts_ += damaged || reader.damaged() ? 1 : 0;
  cut_names_ += is_cut ? 1 : 0;
  // If an id repeats, the last entry counts, as in every protobuf map.
  event_names_.insert_or_assign(id, std::move(name));
}

void XPlaneReader::ReadStatName(std::string_view entry) {
  int64_t id = 0;
  std::string_view name;
  bool damaged = false;
  WireReader reader(ValueOf(entry, &damaged));
  while (reader.Next()) {
    if (reader.field() == 1 && reader.type() == Type::kVarint)
      id = reader.integer();
    if (reader.field() == 2 && reader.type() == Type::kBytes)
      name = reader.bytes();
  }
  damaged_parts_ += damaged || reader.damaged() ? 1 : 0;
  stat_names_.insert_or_assign(id, name);
}

// A stat is one of several number fields, a text, or a reference to a text
// among the stat names.
bool XPlaneReader::ReadStat(std::string_view bytes, XStatField* stat) const {
  *stat = XStatField();
  WireReader reader(bytes);
  while (reader.Next()) {
    const auto named = [&](int64_t id) {
      const auto found = stat_names_.find(id);
      return found == stat_names_.end() ? std::string_view() : found->second;
    };
    switch (reader.field()) {
      case 1:
        stat->name = named(reader.integer());
        break;
      case 2:
        if (reader.type() != Type::kFixed64) break;
        stat->real = reader.real();
        // Other values do not fit into 64 bits.
        if (stat->real > -9e18 && stat->real < 9e18)
          stat->integer = static_cast<int64_t>(stat->real);
        break;
      case 3:
      case 4:
        stat->integer = reader.integer();
        stat->real = static_cast<double>(stat->integer);
        break;
      case 5:
      case 6:
        if (reader.type() != Type::kBytes) break;
        stat->text = reader.bytes();
        stat->is_text = true;
        break;
      case 7:
        stat->text = named(reader.integer());
        stat->is_text = true;
        break;
      default:
        break;
    }
  }
  return !reader.damaged() && !stat->name.empty();
}

// The fields of a line are walked once here and once for its events. Pages that
// have been passed are given back, so a file of 2 GiB is never in memory as a
// whole.
bool XPlaneReader::ReadLine(size_t index, XLineField* line) const {
  *line = XLineField();
  line->bytes = lines_[index];
  ReleaseBehind behind(file_, line->bytes);
  WireReader reader(line->bytes);
  while (reader.Next()) {
    const bool is_bytes = reader.type() == Type::kBytes;
    if (reader.field() == 1 && !is_bytes) line->id = reader.integer();
    if (reader.field() == 2 && is_bytes) line->name = reader.bytes();
    if (reader.field() == 3 && !is_bytes) line->begin_ns = reader.integer();
    if (reader.field() != kEventsField || !is_bytes) continue;
    line->has_events = true;
    behind.Passed(reader.bytes().data());
  }
  return !reader.damaged();
}

XPlaneReader::Skip XPlaneReader::ReadEvent(const XLineField& line,
                                           std::string_view bytes,
                                           XEventField* event) const {
  event->stats.clear();
  int64_t name_id = 0;
  int64_t offset_ps = 0;
  int64_t duration_ps = 0;
  bool is_counted = false;
  XStatField stat;
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.type() == Type::kBytes) {
      if (reader.field() == 4 && ReadStat(reader.bytes(), &stat)) {
        stat.text = Bounded(stat.text);
        event->stats.push_back(stat);
      }
      continue;
    }
    if (reader.field() == 1) name_id = reader.integer();
    if (reader.field() == 2) offset_ps = reader.integer();
    if (reader.field() == 3) duration_ps = reader.integer();
    // An event with a count instead of a time is a sum over many (field 5,
    // num_occurrences).
    if (reader.field() == 5) is_counted = true;
  }
  const auto name = event_names_.find(name_id);
  if (reader.damaged() || name == event_names_.end()) return Skip::kDamaged;
  if (is_counted) return Skip::kCounted;
  if (duration_ps < 0) return Skip::kNegative;
  event->name = name->second.name;
  event->display_name = name->second.display_name;
  for (std::string_view of_name : name->second.stats) {
    if (!ReadStat(of_name, &stat)) continue;
    stat.text = Bounded(stat.text);
    event->stats.push_back(stat);
  }
  const int64_t from_ns = FloorToNs(offset_ps);
  // Checks the bounds first, so that no sum below overflows.
  if (std::max(line.begin_ns, from_ns) > kLargestNs ||
      std::min(line.begin_ns, from_ns) < -kLargestNs ||
      duration_ps > kLargestNs || offset_ps > INT64_MAX - duration_ps) {
    return Skip::kBadTime;
  }
  event->begin_ns = line.begin_ns + from_ns;
  event->end_ns = line.begin_ns + FloorToNs(offset_ps + duration_ps);
  return Skip::kNone;
}

std::vector<XStatField> XPlaneReader::stats() const {
  std::vector<XStatField> read;
  XStatField stat;
  for (std::string_view bytes : stats_) {
    if (ReadStat(bytes, &stat)) read.push_back(stat);
  }
  return read;
}

}  // namespace stepscope
