#include "drawing/memory_curve.h"

#include <stepscope/memory_peaks.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/intervals.h"
#include "words/labels.h"

namespace stepscope {
namespace {

constexpr size_t kCurves = 8;
constexpr size_t kOwners = 12;
constexpr int64_t kCurveColumns = 240;

// Returns the span of the step of `peak`; in a recording without steps, the
// span of all events.
Span StepSpanOf(const Trace& trace, const MemoryPeak& peak) {
  if (peak.step != kNone) {
    const Step& step = trace.steps()[peak.step];
    return {step.begin_ns, step.end_ns};
  }
  const auto rows = trace.allocations();
  return {rows.front().time_ns, rows.back().time_ns + 1};
}

// Adds the level over time: one point for each column of the drawing, with the
// highest level in that column.
void AddCurve(const Trace& trace, const MemoryPeak& peak, const Span& span,
              PageMemory& memory) {
  std::vector<std::pair<int64_t, int64_t>> levels;  // time, bytes
  int64_t sum = 0, at_peak = 0;
  for (RowId row = 0; row < trace.allocations().size(); ++row) {
    const Allocation& event = trace.allocations()[row];
    if (event.device_type != peak.device_type || event.device != peak.device) {
      continue;
    }
    // Uses the allocator's own total if it reports one.
    sum = peak.is_counted ? sum + event.bytes : event.total_allocated_bytes;
    if (row == peak.allocation ||
        (peak.allocation == kNone && event.time_ns < span.begin_ns)) {
      at_peak = sum;
    }
    if (event.time_ns < span.end_ns) levels.push_back({event.time_ns, sum});
  }
  // A sum of sizes starts at 0, because it does not know what was allocated
  // before the recording. The known level at the peak shows by how much to lift
  // the curve.
  const int64_t lift = peak.is_counted ? peak.bytes - at_peak : 0;
  const int64_t grain_ns = std::max<int64_t>(span.length() / kCurveColumns, 1);
  int64_t column = -1;
  for (const auto& [time_ns, bytes] : levels) {
    // Levels before the step are drawn at its start.
    const double us = std::max<int64_t>(time_ns - span.begin_ns, 0) * 1e-3;
    const int64_t here =
        time_ns < span.begin_ns ? -1 : (time_ns - span.begin_ns) / grain_ns;
    if (!memory.bytes.empty() && here == column) {
      // Of the levels before the step, only the last one counts.
      memory.bytes.back() =
          here < 0 ? bytes + lift : std::max(memory.bytes.back(), bytes + lift);
      continue;
    }
    column = here;
    memory.time_us.push_back(us);
    memory.bytes.push_back(bytes + lift);
  }
}

// Adds the memory that is live at the peak, by the operator that allocated it:
// allocated up to the peak, and not released by then. If no allocation made the
// peak, it is the level at the step's start, and then the times of allocations
// show which came before it. Adds nothing if the recording lacks addresses.
void AddOwners(const Trace& trace, const MemoryPeak& peak, PageMemory& memory) {
  std::map<NameId, PageMemory::Owner> owners;
  int64_t known = 0;
  const auto rows = trace.allocations();
  const RowId last = peak.allocation == kNone ? static_cast<RowId>(rows.size())
                                              : peak.allocation + 1;
  for (RowId row = 0; row < last; ++row) {
    const Allocation& event = rows[row];
    if (event.bytes <= 0 || event.device_type != peak.device_type ||
        event.device != peak.device) {
      continue;
    }
    if (peak.allocation == kNone && event.time_ns >= peak.time_ns) break;
    // Old files have no addresses, so no release belongs to an allocation.
    if (event.address == 0) return;
    const bool released =
        event.other != kNone && event.other < last &&
        (peak.allocation != kNone || rows[event.other].time_ns < peak.time_ns);
    if (released) continue;
    const RowId op = AllocatingOp(trace, event.op);
    const NameId name = op == kNone ? 0 : trace.ops()[op].name;
    PageMemory::Owner& owner = owners[name];
    owner.bytes += event.bytes;
    ++owner.blocks;
    known += event.bytes;
  }
  for (auto& [name, owner] : owners) {
    owner.op = trace.name(name).substr(0, 200);
    memory.owners.push_back(std::move(owner));
  }
  std::ranges::stable_sort(memory.owners, std::greater(),
                           &PageMemory::Owner::bytes);
  if (memory.owners.size() > kOwners) memory.owners.resize(kOwners);
  memory.older_bytes = std::max<int64_t>(peak.bytes - known, 0);
}

}  // namespace

void DrawMemory(const Trace& trace, PageDetails& details) {
  std::map<std::pair<int32_t, int32_t>, MemoryPeak> highest;  // by device
  for (const MemoryPeak& peak : MemoryPeaks(trace)) {
    // Each device gets one curve, of the step with the device's highest peak.
    const auto [at, is_new] =
        highest.try_emplace({peak.device_type, peak.device}, peak);
    if (!is_new && peak.bytes > at->second.bytes) at->second = peak;
  }
  for (const auto& [device, peak] : highest) {
    if (details.memory.size() == kCurves) break;
    const Span span = StepSpanOf(trace, peak);
    PageMemory memory;
    memory.device = MemoryDeviceName(peak);
    if (peak.step != kNone) memory.step = trace.steps()[peak.step].number;
    memory.length_us = span.length() * 1e-3;
    memory.peak_us = std::max<int64_t>(peak.time_ns - span.begin_ns, 0) * 1e-3;
    memory.peak_bytes = peak.bytes;
    AddCurve(trace, peak, span, memory);
    AddOwners(trace, peak, memory);
    details.memory.push_back(std::move(memory));
  }
}

}  // namespace stepscope
