#include "xspace/reader/xspace_reader.h"

#include <absl/status/status.h>

#include <charconv>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "io/whole_file.h"
#include "rows/field_values.h"
#include "io/file_damage.h"
#include "rows/own_header_reader.h"
#include "xspace/reader/wire_reader.h"
#include "xspace/reader/xspace_rows_reader.h"

namespace stepscope {
namespace {

constexpr std::string_view kGpuPrefix = "/device:GPU:";
// A real file has one plane per device and a few for the host. In a hostile
// file a plane may take only two bytes, but it needs hundreds in memory.
constexpr size_t kMostPlanes = 4096;
// The most bytes of a name that a message shows.
constexpr size_t kShownBytes = 100;

// The planes of a file and the fields beside them.
struct Space {
  std::vector<XPlaneReader> planes;
  std::vector<std::string_view> plane_bytes;
  std::string host;
  int64_t planes_left_out = 0;
  bool is_cut = false;
  bool has_cut_plane = false;  // the last of `planes`
};

Space ReadPlanes(const WholeFile& file) {
  Space space;
  WireReader reader(file.bytes());
  const auto add = [&](std::string_view plane) {
    if (space.planes.size() == kMostPlanes) {
      ++space.planes_left_out;
      return;
    }
    space.planes.emplace_back(plane, file);
    space.plane_bytes.push_back(plane);
  };
  while (reader.Next()) {
    if (reader.type() != WireReader::Type::kBytes) continue;
    if (reader.field() == 1) add(reader.bytes());
    if (reader.field() == 4 && space.host.empty())
      space.host = std::string(reader.bytes());
  }
  space.is_cut = reader.damaged();
  // A truncated plane may still have whole lines.
  if (!reader.cut_bytes().empty() && reader.field() == 1) {
    space.has_cut_plane = space.planes.size() < kMostPlanes;
    add(reader.cut_bytes());
  }
  return space;
}

// Returns 3 for "/device:GPU:3", nothing for other planes. A damaged trace may
// have a negative number.
std::optional<int32_t> DeviceOf(std::string_view plane) {
  if (!plane.starts_with(kGpuPrefix)) return std::nullopt;
  const std::string_view number = plane.substr(kGpuPrefix.size());
  int32_t device = 0;
  const auto parsed =
      std::from_chars(number.data(), number.data() + number.size(), device);
  if (parsed.ec != std::errc()) return std::nullopt;
  return device;
}

Device DeviceFrom(const XPlaneReader& plane, int32_t ordinal) {
  Device device;
  device.ordinal = ordinal;
  for (const XStatField& stat : plane.stats()) {
    const auto whole = [&] { return static_cast<int32_t>(stat.integer); };
    if (stat.name == "device_vendor") device.vendor = std::string(stat.text);
    if (stat.name == "gpu_device_name") device.name = std::string(stat.text);
    if (stat.name == "clock_rate") device.clock_khz = stat.integer;
    if (stat.name == "core_count") device.sm_count = whole();
    if (stat.name == "memory_bandwidth")
      device.memory_bandwidth_bytes_per_s = stat.integer;
    if (stat.name == "memory_size") device.memory_bytes = stat.integer;
    if (stat.name == "compute_cap_major") device.compute_major = whole();
    if (stat.name == "compute_cap_minor") device.compute_minor = whole();
  }
  return device;
}

// False for the kinds that an XSpace has no place for. The header may list them
// as watched, but a rule must not take "none in the file" for "none happened".
bool IsHeld(Kind kind) {
  return kind != Kind::kOpShapes && kind != Kind::kOpStacks &&
         kind != Kind::kCommunication && kind != Kind::kSync &&
         kind != Kind::kDeviceMemory;
}

class SpaceReader {
 public:
  SpaceReader(const std::string& path, const WholeFile& file)
      : path_(path), file_(file), rows_(&builder_) {}

  absl::StatusOr<Trace> Read();

 private:
  void ReadEnvironment(const XPlaneReader& plane);
  void ReadOwnFacts(std::string_view json);
  void ReadRows(const Space& space);
  void AddLosses(const Space& space);
  void AddLoss(const char* name, std::string detail, int64_t count,
               Severity severity) {
    if (count != 0)
      builder_.Add(Loss{name, std::move(detail), count, severity});
  }

  const std::string& path_;
  const WholeFile& file_;
  TraceBuilder builder_;
  XSpaceRowReader rows_;
  OwnHeader header_;
  std::string own_json_;
  int64_t begin_ns_ = 0;  // epoch ns of time 0
  int64_t foreign_planes_ = 0;
  bool unread_device_ = false;  // true if one of these planes is a TPU
  std::string foreign_example_;
};

// Times in an XSpace count from the start of the profile. This plane has the
// epoch time of that start.
void SpaceReader::ReadEnvironment(const XPlaneReader& plane) {
  for (const XStatField& stat : plane.stats()) {
    // At most half, so that adding it to an event's time cannot overflow.
    if (stat.name == "profile_start_time" && stat.integer > 0 &&
        stat.integer <= kLargestNs / 2) {
      begin_ns_ = stat.integer;
    }
    if (stat.name == "stepscope" && stat.is_text) ReadOwnFacts(stat.text);
  }
}

void SpaceReader::ReadOwnFacts(std::string_view json) {
  own_json_ = std::string(json);
  ReadOwnHeader(own_json_, &header_);
  for (const OwnHeader::DrawnThread& from : header_.threads) {
    const RowId row = builder_.ThreadRow(from.thread.pid, from.thread.tid);
    builder_.thread(row).torch_thread = from.thread.torch_thread;
    builder_.thread(row).name = builder_.Intern(from.name);
    rows_.KnowThread(from.thread.tid, row);
  }
}

// Planes of other kinds (TPUs, for example) have lines that no table of a Trace
// fits.
void SpaceReader::ReadRows(const Space& space) {
  for (size_t i = 0; i < space.planes.size(); ++i) {
    const XPlaneReader& plane = space.planes[i];
    const std::optional<int32_t> device = DeviceOf(plane.name());
    if (plane.name().starts_with("/host:CPU")) {
      rows_.AddHostPlane(plane);
    } else if (device.has_value()) {
      rows_.AddDevicePlane(plane, *device);
      if (!header_.is_ours) {
        builder_.run().devices.push_back(DeviceFrom(plane, *device));
      }
    } else if (plane.line_count() > 0 &&
               !plane.name().starts_with("/device:CUSTOM:")) {
      ++foreign_planes_;
      unread_device_ |= plane.name().starts_with("/device:TPU:");
      if (foreign_example_.empty())
        foreign_example_ = std::string(plane.name().substr(0, kShownBytes));
    }
    file_.Release(space.plane_bytes[i]);
  }
}

void SpaceReader::AddLosses(const Space& space) {
  const XSpaceRowReader::Counts& counts = rows_.counts();
  AddFileDamage({.damage = file_.damage(),
                 .problem = file_.problem(),
                 .is_cut = space.is_cut,
                 .cut_is = "truncated or damaged",
                 .where = ""},
                &builder_);
  int64_t damaged = counts.damaged_events + counts.damaged_lines;
  int64_t cut_names = 0;
  for (const XPlaneReader& plane : space.planes) {
    damaged += plane.damaged_parts();
    cut_names += plane.cut_names();
  }
  // That plane is damaged only because the file ends there, which is already
  // reported.
  if (space.has_cut_plane && space.planes.back().damaged_parts() > 0) --damaged;
  AddLoss("damaged-events",
          "the file is damaged: events, lines, names or planes whose bytes "
          "make no sense were left out",
          damaged, Severity::kWarning);
  AddLoss("long-names",
          "names of more than " + std::to_string(kMostXNameBytes) +
              " bytes, or with more than " + std::to_string(kMostXNameStats) +
              " stats, were cut",
          cut_names, Severity::kNote);
  AddLoss("too-many-planes",
          "only the first " + std::to_string(kMostPlanes) +
              " planes of the file were read",
          space.planes_left_out, Severity::kWarning);
  AddLoss("negative-durations",
          "events that end before they begin were left out",
          counts.negative_durations, Severity::kWarning);
  AddLoss("unreadable-times",
          "events with impossible times, or with a count in place of a time, "
          "were left out",
          counts.bad_times + counts.counted_events, Severity::kWarning);
  AddLoss("unknown-events",
          "planes were skipped; the first is \"" + foreign_example_ + "\"" +
              (unread_device_ ? "; the activity of TPUs is missing" : ""),
          foreign_planes_,
          unread_device_ ? Severity::kWarning : Severity::kNote);
  if (header_.is_ours) {
    AddLoss("format-limits",
            "an XSpace has no input shapes, call stacks, sizes of collectives, "
            "waits or driver memory; analyse the Chrome trace of the same run "
            "for these",
            1, Severity::kNote);
  }
}

absl::StatusOr<Trace> SpaceReader::Read() {
  const Space space = ReadPlanes(file_);
  // These two planes are read first, because they tell how to read the others
  // but may come after them in the file.
  for (const XPlaneReader& plane : space.planes) {
    if (plane.name() == "Task Environment") ReadEnvironment(plane);
    if (plane.name() == "/device:CUSTOM:stepscope") rows_.AddOwnPlane(plane);
  }
  ReadRows(space);
  if (rows_.counts().rows == 0 && (space.is_cut || !file_.problem().empty())) {
    return absl::DataLossError(
        "cannot read " + path_ + ": no event could be read of its " +
        std::to_string(file_.bytes().size()) +
        " bytes, which are truncated or damaged. Copy it again, or record "
        "it again");
  }
  rows_.Finish();
  if (header_.is_ours) {
    builder_.run() = header_.run;
    for (Kind kind : header_.watched) {
      if (IsHeld(kind)) builder_.Watch(kind);
    }
    for (const Loss& loss : header_.losses) builder_.Add(loss);
  } else {
    builder_.run().host = space.host;
    builder_.run().producer = "XSpace";
    rows_.WatchWhatWasSeen();
  }
  // Shifts the rows added so far. Those of the header are added afterwards,
  // because their times are since the epoch.
  builder_.ShiftTimes(begin_ns_);
  if (header_.is_ours) AddHeaderRows(own_json_, &builder_);
  builder_.run().source = path_;
  AddLosses(space);
  return builder_.Build();
}

}  // namespace

absl::StatusOr<Trace> ReadXSpace(const std::string& path, BytesReader* bytes) {
  absl::StatusOr<std::unique_ptr<WholeFile>> file =
      WholeFile::Make(path, bytes);
  if (!file.ok()) return file.status();
  return SpaceReader(path, **file).Read();
}

}  // namespace stepscope
