#include "xspace/reader/xspace_rows_reader.h"

#include <algorithm>
#include <charconv>

#include "rows/field_values.h"
#include "xspace/reader/xspace_details_reader.h"

namespace stepscope {
namespace {

// The ids of our own lines that do not belong to a thread.
constexpr int64_t kMemoryLineId = int64_t{1} << 40;
constexpr int64_t kNoThreadLineId = kMemoryLineId + 1;
// Lines with ids from here (0xdeadbeef as a signed 32-bit number) are derived
// from other lines.
constexpr int64_t kFirstDerivedId = -559038737;
constexpr int64_t kLastDerivedId = -559038348;

// True for lines that XProf or XLA computes from others; reading them would
// count their time twice. Counters are read from the header object instead.
bool IsDerived(const XLineField& line) {
  static constexpr std::string_view kNames[] = {"Steps",
                                                "TensorFlow Ops",
                                                "TensorFlow Name Scope",
                                                "XLA Modules",
                                                "XLA Ops",
                                                "Framework Ops",
                                                "Source code",
                                                "Framework Name Scope",
                                                "XLA TraceMe",
                                                "Async XLA Ops",
                                                "_counters_"};
  return (line.id >= kFirstDerivedId && line.id <= kLastDerivedId) ||
         line.name.starts_with("stepscope: ") ||
         std::ranges::find(kNames, line.name) != std::end(kNames);
}

}  // namespace

uint64_t XSpaceRowReader::FlowOf(const XEventField& event) {
  constexpr uint64_t kIdBits = (uint64_t{1} << 56) - 1;
  // The two lowest bits are the direction.
  return static_cast<uint64_t>(event.integer("flow").value_or(0)) >> 2 &
         kIdBits;
}

template <typename Use>
void XSpaceRowReader::ForEachEvent(const XPlaneReader& plane,
                                   const XLineField& line, Use use) {
  XEventField event;
  plane.ForEachEvent(line, [&](std::string_view bytes) {
    switch (plane.ReadEvent(line, bytes, &event)) {
      case XPlaneReader::Skip::kNone:
        use(event);
        break;
      case XPlaneReader::Skip::kDamaged:
        ++counts_.damaged_events;
        break;
      case XPlaneReader::Skip::kNegative:
        ++counts_.negative_durations;
        break;
      case XPlaneReader::Skip::kBadTime:
        ++counts_.bad_times;
        break;
      case XPlaneReader::Skip::kCounted:
        ++counts_.counted_events;
        break;
    }
  });
}

// Returns the recorded name. If XProf needed another name, the recorded one is
// the display name.
NameId XSpaceRowReader::NameOf(const XEventField& event) {
  const std::string_view shown = event.display_name;
  const bool was_altered =
      !shown.empty() && shown.size() < event.name.size() &&
      (event.name.starts_with(shown) || event.name.ends_with(shown));
  return builder_.Intern(was_altered ? shown : event.name);
}

// A line is a thread, and its id is the tid. The process is not in the file.
RowId XSpaceRowReader::ThreadOf(const XLineField& line) {
  if (line.id == kNoThreadLineId || line.id == kMemoryLineId) return kNone;
  const auto [it, added] = threads_.try_emplace(line.id, kNone);
  if (added) {
    it->second = builder_.ThreadRow(0, line.id);
    std::string_view name = line.name;
    constexpr std::string_view kTraining = " (training)";
    if (name.ends_with(kTraining)) {
      name.remove_suffix(kTraining.size());
      builder_.run().training_thread = it->second;
    }
    builder_.thread(it->second).name = builder_.Intern(name);
  }
  return it->second;
}

// The format has no kinds of ranges; our own plane lists which names are
// modules and phases.
void XSpaceRowReader::AddOwnPlane(const XPlaneReader& plane) {
  XLineField line;
  for (size_t i = 0; i < plane.line_count(); ++i) {
    plane.ReadLine(i, &line);
    if (line.name != "modules" && line.name != "phases") continue;
    auto& names = line.name == "modules" ? module_names_ : phase_names_;
    ForEachEvent(plane, line,
                 [&](const XEventField& event) { names.emplace(event.name); });
  }
}

void XSpaceRowReader::AddHostPlane(const XPlaneReader& plane) {
  XLineField line;
  for (size_t i = 0; i < plane.line_count(); ++i) {
    if (!plane.ReadLine(i, &line)) ++counts_.damaged_lines;
    if (IsDerived(line) || !line.has_events) continue;
    const RowId thread = ThreadOf(line);
    ForEachEvent(plane, line, [&](const XEventField& event) {
      ++counts_.rows;
      AddHostEvent(event, thread);
    });
  }
}

void XSpaceRowReader::AddDevicePlane(const XPlaneReader& plane,
                                     int32_t device) {
  XLineField line;
  DeviceSteps& shown = device_steps_.emplace_back();
  for (size_t i = 0; i < plane.line_count(); ++i) {
    if (!plane.ReadLine(i, &line)) ++counts_.damaged_lines;
    if (line.id == kFirstDerivedId) {
      ForEachEvent(plane, line, [&](const XEventField& event) {
        int64_t number = -1;
        std::from_chars(event.name.data(),
                        event.name.data() + event.name.size(), number);
        if (number >= 0) {
          shown.steps.push_back({.begin_ns = event.begin_ns,
                                 .end_ns = event.end_ns,
                                 .number = number});
        }
      });
    }
    if (IsDerived(line)) continue;
    DeviceWork work;
    work.device = device;
    work.stream = line.id;
    ForEachEvent(plane, line, [&](const XEventField& event) {
      work.begin_ns = event.begin_ns;
      work.end_ns = event.end_ns;
      work.correlation = event.integer("correlation_id").value_or(-1);
      work.context = ReadContext(event.text("context_id"));
      shown.busy_ns += work.end_ns - work.begin_ns;
      ++counts_.rows;
      AddDeviceEvent(event, work);
    });
  }
}

void XSpaceRowReader::AddDeviceEvent(const XEventField& event,
                                     const DeviceWork& work) {
  if (IsMemsetEvent(event)) {
    Memset row;
    static_cast<DeviceWork&>(row) = work;
    row.name = NameOf(event);
    row.bytes = ReadBytes(event.text("memset_details"));
    seen_ |= Bit(Kind::kMemset);
    memsets_.push_back({row, FlowOf(event)});
  } else if (IsCopyEvent(event)) {
    Copy row;
    static_cast<DeviceWork&>(row) = work;
    row.name = NameOf(event);
    ReadCopyDetails(event, &row);
    seen_ |= Bit(Kind::kCopy);
    builder_.Add(row);
  } else {
    Kernel row;
    static_cast<DeviceWork&>(row) = work;
    row.name = NameOf(event);
    ReadKernelDetails(event.text("kernel_details"), &row);
    seen_ |= Bit(Kind::kKernel);
    builder_.Add(row);
  }
}

// Our memsets have no correlation, because with one XProf would count them as
// compute. An arrow links them to their call.
void XSpaceRowReader::Finish() {
  for (auto& [row, flow] : memsets_) {
    const auto call = correlation_of_flow_.find(flow);
    if (row.correlation < 0 && flow != 0 && call != correlation_of_flow_.end())
      row.correlation = call->second;
    builder_.Add(row);
  }
  memsets_.clear();
  if ((seen_ & Bit(Kind::kStep)) != 0) return;
  // The busiest device is the one that the analysis looks at.
  std::erase_if(device_steps_,
                [](const DeviceSteps& one) { return one.steps.empty(); });
  const auto busiest =
      std::ranges::max_element(device_steps_, {}, &DeviceSteps::busy_ns);
  if (busiest == device_steps_.end()) return;
  for (const Step& step : busiest->steps) builder_.Add(step);
  seen_ |= Bit(Kind::kStep);
}

// A foreign file does not list the kinds that it recorded. They are taken to be
// the kinds with events; the tables of a GPU go together.
void XSpaceRowReader::WatchWhatWasSeen() {
  const uint64_t device =
      Bit(Kind::kKernel) | Bit(Kind::kCopy) | Bit(Kind::kMemset);
  if ((seen_ & device) != 0) seen_ |= device;
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if ((seen_ & Bit(static_cast<Kind>(kind))) != 0)
      builder_.Watch(static_cast<Kind>(kind));
  }
}

}  // namespace stepscope
