#include "xspace/writer/xspace_plane.h"

#include <algorithm>
#include <array>

#include "json/json_writer.h"
#include "xspace/writer/xspace_wire.h"

namespace stepscope {
namespace {

constexpr int64_t kFirstTextId = static_cast<int64_t>(XStatId::kCount);

// XStat fields: 1 metadata_id, 2 double, 3 uint64, 4 int64, 5 string, 7 ref.
constexpr int kUintField = 3;
constexpr int kIntField = 4;
constexpr int kStringField = 5;
constexpr int kRefField = 7;
constexpr int kEventStatField = 4;

// Computes the length of a message first, because it comes before the content.
// The key of each field here has one byte.
void AppendNumberStat(int stat_field, XStatId stat, int value_field,
                      uint64_t value, std::string& out) {
  const auto id = static_cast<uint64_t>(stat);
  AppendHead(stat_field, 1 + VarintSize(id) + 1 + VarintSize(value), out);
  AppendIntField(1, static_cast<int64_t>(id), out);
  AppendIntField(value_field, static_cast<int64_t>(value), out);
}

void AppendStringStat(int stat_field, XStatId stat, std::string_view text,
                      std::string& out) {
  const auto id = static_cast<uint64_t>(stat);
  AppendHead(stat_field,
             1 + VarintSize(id) + 1 + VarintSize(text.size()) + text.size(),
             out);
  AppendIntField(1, static_cast<int64_t>(id), out);
  AppendBytesField(kStringField, text, out);
}

// Appends one entry of a map<int64, message>. The message repeats the id.
void AppendMapEntry(int map_field, int64_t id, std::string_view rest,
                    std::string& out) {
  std::string message;
  AppendIntField(1, id, message);
  message += rest;
  std::string entry;
  AppendIntField(1, id, entry);
  AppendBytesField(2, message, entry);
  AppendBytesField(map_field, entry, out);
}

}  // namespace

const char* XStatName(XStatId id) {
  static constexpr std::array<const char*, static_cast<size_t>(XStatId::kCount)>
      kNames = {"",
                "group_id",
                "step_num",
                "step_name",
                "correlation_id",
                "device_id",
                "flow",
                "tf_op",
                "_ipl_stage_id",
                "_ipl_stage_name",
                "_ipl_stage_cat",
                "kernel_details",
                "memcpy_details",
                "context_id",
                "shape",
                "allocator_name",
                "bytes_allocated",
                "bytes_available",
                "peak_bytes_in_use",
                "requested_bytes",
                "allocation_bytes",
                "addr",
                "device_vendor",
                "gpu_device_name",
                "clock_rate",
                "core_count",
                "memory_bandwidth",
                "memory_size",
                "compute_cap_major",
                "compute_cap_minor",
                "Hlo Proto",
                "program_id",
                "profile_start_time",
                "profile_stop_time",
                "sequence number",
                "return code",
                "detail",
                "severity",
                "inputs",
                "stack",
                "occupancy",
                "note",
                "hlo_op",
                "hlo_module",
                "flops",
                "bytes_accessed",
                "gflop",
                "fragmentation",
                "peak_teraflops_per_second",
                "stepscope",
                "fused_ops",
                "kernel_file",
                "kernel_kwargs",
                "stepscope.counted"};
  static_assert(kNames.back() != nullptr, "a stat has no name");
  return kNames[static_cast<size_t>(id)];
}

XNames::XNames(const Trace& trace)
    : trace_(trace),
      first_special_(1 + static_cast<int64_t>(trace.name_count())),
      event_used_(trace.name_count()),
      text_used_(trace.name_count()) {}

// Ids are computed from NameIds. Only ids that were used are declared at the
// end.
int64_t XNames::Event(NameId name) {
  event_used_[name] = true;
  return 1 + static_cast<int64_t>(name);
}

int64_t XNames::Event(std::string_view name, std::string_view display_name) {
  const auto [it, added] = event_ids_.try_emplace(
      std::string(name),
      first_special_ + static_cast<int64_t>(special_events_.size()));
  if (added)
    special_events_.push_back({std::string(name), std::string(display_name)});
  return it->second;
}

int64_t XNames::Text(NameId text) {
  text_used_[text] = true;
  return kFirstTextId + static_cast<int64_t>(text);
}

int64_t XNames::Text(std::string_view text) {
  const auto [it, added] = text_ids_.try_emplace(
      std::string(text),
      kFirstTextId +
          static_cast<int64_t>(trace_.name_count() + special_texts_.size()));
  if (added) special_texts_.emplace_back(text);
  return it->second;
}

std::string XNames::MetadataBytes() const {
  constexpr int kEventMetadata = 4;
  constexpr int kStatMetadata = 5;
  std::string out;
  const auto event = [&](int64_t id, std::string_view name,
                         std::string_view display_name) {
    std::string rest;
    AppendBytesField(2, ValidUtf8(name), rest);
    if (!display_name.empty())
      AppendBytesField(4, ValidUtf8(display_name), rest);
    AppendMapEntry(kEventMetadata, id, rest, out);
  };
  const auto stat = [&](int64_t id, std::string_view name) {
    std::string rest;
    AppendBytesField(2, ValidUtf8(name), rest);
    AppendMapEntry(kStatMetadata, id, rest, out);
  };
  for (NameId name = 0; name < event_used_.size(); ++name)
    if (event_used_[name]) event(1 + int64_t{name}, trace_.name(name), "");
  for (size_t i = 0; i < special_events_.size(); ++i)
    event(first_special_ + static_cast<int64_t>(i), special_events_[i].name,
          special_events_[i].display_name);
  // Declares all stats, used or not, because XProf checks whether each plane
  // declares group_id.
  for (int64_t id = 1; id < kFirstTextId; ++id)
    stat(id, XStatName(static_cast<XStatId>(id)));
  for (NameId text = 0; text < text_used_.size(); ++text)
    if (text_used_[text]) stat(kFirstTextId + text, trace_.name(text));
  for (size_t i = 0; i < special_texts_.size(); ++i)
    stat(kFirstTextId + static_cast<int64_t>(trace_.name_count() + i),
         special_texts_[i]);
  return out;
}

char* XEventBytes::Room(size_t bytes) {
  if (bytes_.size() - size_ < bytes) bytes_.resize(2 * bytes_.size() + bytes);
  return bytes_.data() + size_;
}

// XEvent fields: 1 metadata_id, 2 offset_ps, 3 duration_ps.
void XEventBytes::Start(int64_t metadata_id, int64_t offset_ns,
                        int64_t duration_ns) {
  size_ = 0;
  char* const begin = Room(3 * (1 + kMostVarintBytes));
  char* at = begin;
  *at++ = 1 << 3;
  at = PutVarint(static_cast<uint64_t>(metadata_id), at);
  *at++ = 2 << 3;
  at = PutVarint(static_cast<uint64_t>(offset_ns * 1000), at);
  *at++ = 3 << 3;
  at = PutVarint(
      static_cast<uint64_t>(std::max<int64_t>(duration_ns, 0) * 1000), at);
  size_ = static_cast<size_t>(at - begin);
}

// Writes the same bytes as AppendNumberStat(): the head, the stat's id, the
// value.
void XEventBytes::Number(XStatId stat, int value_field, uint64_t value) {
  static_assert(static_cast<int>(XStatId::kCount) < 0x80, "an id has one byte");
  char* const begin = Room(5 + kMostVarintBytes);
  begin[0] = kEventStatField << 3 | 2;
  begin[2] = 1 << 3;
  begin[3] = static_cast<char>(stat);
  begin[4] = static_cast<char>(value_field << 3);
  char* const end = PutVarint(value, begin + 5);
  begin[1] = static_cast<char>(end - begin - 2);
  size_ += static_cast<size_t>(end - begin);
}

void XEventBytes::Int(XStatId stat, int64_t value) {
  Number(stat, kIntField, static_cast<uint64_t>(value));
}
void XEventBytes::Uint(XStatId stat, uint64_t value) {
  Number(stat, kUintField, value);
}
void XEventBytes::Ref(XStatId stat, int64_t text_id) {
  Number(stat, kRefField, static_cast<uint64_t>(text_id));
}
void XEventBytes::Double(XStatId stat, double value) {
  Counter(static_cast<int64_t>(stat), value);
}
void XEventBytes::Counter(int64_t text_id, double value) {
  std::string content;
  AppendIntField(1, text_id, content);
  AppendDoubleField(2, value, content);
  std::string whole;
  AppendBytesField(kEventStatField, content, whole);
  std::copy(whole.begin(), whole.end(), Room(whole.size()));
  size_ += whole.size();
}
void XEventBytes::String(XStatId stat, std::string_view text) {
  std::string whole;
  AppendStringStat(kEventStatField, stat, text, whole);
  std::copy(whole.begin(), whole.end(), Room(whole.size()));
  size_ += whole.size();
}

void XPlaneStats::Uint(XStatId stat, uint64_t value) {
  AppendNumberStat(6, stat, kUintField, value, bytes_);
}
void XPlaneStats::Double(XStatId stat, double value) {
  std::string content;
  AppendIntField(1, static_cast<int64_t>(stat), content);
  AppendDoubleField(2, value, content);
  AppendBytesField(6, content, bytes_);
}
void XPlaneStats::String(XStatId stat, std::string_view text) {
  AppendStringStat(6, stat, ValidUtf8(text), bytes_);
}

bool WriteXPlane(int64_t id, std::string_view plane_name,
                 const std::vector<XLineSource>& lines, const XNames& names,
                 const XPlaneStats& stats, XSpaceFile& file) {
  constexpr int kEventsField = 4;
  XEventBytes event;
  std::vector<std::string> heads;
  std::vector<size_t> sizes;
  std::string head;
  AppendIntField(1, id, head);
  AppendBytesField(2, ValidUtf8(plane_name), head);
  size_t plane_size = head.size() + stats.bytes().size();
  // A length comes before its content, and a plane may be too large for memory.
  // So the events are made twice: here to measure them, below to write them.
  for (const XLineSource& line : lines) {
    std::string line_head;
    AppendIntField(1, line.id, line_head);
    AppendBytesField(2, ValidUtf8(line.name), line_head);
    if (line.display_id != 0) AppendIntField(10, line.display_id, line_head);
    size_t size = line_head.size();
    for (size_t i = 0; i < line.count; ++i) {
      line.event(i, event);
      size += 1 + VarintSize(event.bytes().size()) + event.bytes().size();
    }
    plane_size += 1 + VarintSize(size) + size;
    heads.push_back(std::move(line_head));
    sizes.push_back(size);
  }
  // Comes after the events, because only they show which names are used.
  const std::string metadata = names.MetadataBytes();
  plane_size += metadata.size();

  if (!file.Take(plane_size)) return false;
  std::string& out = file.block();
  AppendHead(1, plane_size, out);
  out += head;
  for (size_t l = 0; l < lines.size(); ++l) {
    AppendHead(3, sizes[l], out);
    out += heads[l];
    for (size_t i = 0; i < lines[l].count; ++i) {
      lines[l].event(i, event);
      AppendBytesField(kEventsField, event.bytes(), out);
      file.Flush();
    }
  }
  out += metadata;
  out += stats.bytes();
  file.Flush();
  return true;
}

}  // namespace stepscope
