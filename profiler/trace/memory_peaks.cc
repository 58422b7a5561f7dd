#include <stepscope/memory_peaks.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace stepscope {
namespace {

using Device = std::pair<int32_t, int32_t>;  // type, ordinal

Device DeviceOf(const Allocation& row) { return {row.device_type, row.device}; }

struct Level {
  int64_t bytes = 0;
  int64_t reserved_bytes = -1;
  bool known = false;  // an event of the device was seen
  bool is_counted = false;
};

// Returns how much each device must have held before its first event. Files
// without totals have only sizes, and the release of a block that is older than
// the recording would make their sum negative. The sum therefore starts at the
// smallest value at which it never becomes negative.
std::map<Device, int64_t> LeastBefore(const Trace& trace) {
  std::map<Device, int64_t> sums;
  std::map<Device, int64_t> before;
  for (const Allocation& row : trace.allocations()) {
    int64_t& sum = sums[DeviceOf(row)];
    sum += row.bytes;
    int64_t& least = before[DeviceOf(row)];
    least = std::max(least, -sum);
  }
  return before;
}

bool OnlyAllocates(std::string_view name) {
  return name.starts_with("aten::empty") || name == "aten::new_empty" ||
         name == "aten::new_empty_strided" || name.starts_with("aten::resize");
}

// Goes once through the events in time order and keeps the level of each
// device.
class Peaks {
 public:
  explicit Peaks(const Trace& trace) : trace_(trace) {
    for (const auto& [device, bytes] : LeastBefore(trace)) {
      Level& level = levels_[device];
      level.bytes = bytes;
    }
  }

  std::vector<MemoryPeak> Run() {
    const auto rows = trace_.allocations();
    RowId next = 0;
    const auto up_to = [&](int64_t time_ns) {
      for (; next < rows.size() && rows[next].time_ns < time_ns; ++next)
        Take(next);
    };
    if (trace_.steps().empty()) {
      Open(kNone, rows.empty() ? 0 : rows.front().time_ns);
      up_to(INT64_MAX);
      Close();
      return std::move(peaks_);
    }
    for (RowId step = 0; step < trace_.steps().size(); ++step) {
      up_to(trace_.steps()[step].begin_ns);
      Open(step, trace_.steps()[step].begin_ns);
      up_to(trace_.steps()[step].end_ns);
      Close();
    }
    return std::move(peaks_);
  }

 private:
  void Open(RowId step, int64_t begin_ns) {
    step_ = step;
    open_ = true;
    for (const auto& [device, level] : levels_) {
      // The level at the start of the step may be its peak. Memory from earlier
      // steps counts, because a peak is everything that the device holds, not
      // only what the step adds.
      if (level.known) Raise(device, level, begin_ns, kNone);
    }
  }

  void Close() {
    for (const auto& [device, peak] : now_) peaks_.push_back(peak);
    now_.clear();
    open_ = false;
  }

  void Take(RowId row) {
    const Allocation& event = trace_.allocations()[row];
    Level& level = levels_[DeviceOf(event)];
    level.is_counted = event.total_allocated_bytes < 0;
    level.bytes = level.is_counted ? level.bytes + event.bytes
                                   : event.total_allocated_bytes;
    level.reserved_bytes = event.total_reserved_bytes;
    const bool first = !std::exchange(level.known, true);
    if (!open_) return;
    if (first && event.bytes < 0) {
      // The first event is a release: its memory was held when the step began.
      Level before = level;
      before.bytes -= event.bytes;
      Raise(DeviceOf(event), before, event.time_ns, kNone);
    }
    Raise(DeviceOf(event), level, event.time_ns, row);
  }

  // The first of equal levels stays the peak.
  void Raise(const Device& device, const Level& level, int64_t time_ns,
             RowId row) {
    const auto [found, is_new] = now_.try_emplace(device);
    MemoryPeak& peak = found->second;
    if (!is_new && level.bytes <= peak.bytes) return;
    peak = {.step = step_,
            .device_type = device.first,
            .device = device.second,
            .bytes = level.bytes,
            .reserved_bytes = level.reserved_bytes,
            .time_ns = time_ns,
            .allocation = row,
            .is_counted = level.is_counted};
    if (row != kNone)
      peak.op = AllocatingOp(trace_, trace_.allocations()[row].op);
  }

  const Trace& trace_;
  std::map<Device, Level> levels_;
  std::map<Device, MemoryPeak> now_;
  std::vector<MemoryPeak> peaks_;
  RowId step_ = kNone;
  bool open_ = false;
};

}  // namespace

// Allocations happen in an allocating op: aten::empty allocates for aten::mm.
// The report names the op that a user can change, which is the first enclosing
// op that does more than allocate.
RowId AllocatingOp(const Trace& trace, RowId op) {
  const RowId innermost = op;
  while (op != kNone && OnlyAllocates(trace.name(trace.ops()[op].name)))
    op = trace.ops()[op].parent;
  return op == kNone ? innermost : op;
}

std::vector<MemoryPeak> MemoryPeaks(const Trace& trace) {
  return Peaks(trace).Run();
}

}  // namespace stepscope
