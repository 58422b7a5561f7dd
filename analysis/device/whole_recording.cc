#include "device/whole_recording.h"

#include <algorithm>

#include "device/device_ledger.h"
#include "steps/steps.h"
#include "timeline/time_split.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// An activity that starts more than 0.1 ms after its launch had to queue. The
// limit is higher than in steps, because the first launch of a process also
// loads its kernel.
constexpr int64_t kQueuedNs = 100'000;

// From the first begin to the last end of all rows. Device work may go on after
// the host's last row, and the other way round.
Span SpanOf(const Trace& trace) {
  Span span;
  bool any = false;
  const auto add = [&](const auto& rows) {
    for (const auto& row : rows) {
      if (row.end_ns < row.begin_ns) continue;
      if (!any) span = {row.begin_ns, row.end_ns};
      any = true;
      span.begin_ns = std::min(span.begin_ns, row.begin_ns);
      span.end_ns = std::max(span.end_ns, row.end_ns);
    }
  };
  add(trace.ops());
  add(trace.kernels());
  add(trace.copies());
  add(trace.memsets());
  // Runtime calls count only if there is nothing else: they may begin long
  // before, while libraries are loaded.
  if (!any) add(trace.runtime_calls());
  return span;
}

// Returns when the split begins. If the first recorded activity had to queue,
// the device was busy with activities that were not recorded, and the time
// before cannot be explained.
int64_t BeginOnDevice(const Trace& trace, int64_t begin_ns) {
  const DeviceWork* first = nullptr;
  const auto look = [&](const auto& rows) {
    if (rows.empty()) return;
    if (first == nullptr || rows[0].begin_ns < first->begin_ns) {
      first = &rows[0];
    }
  };
  look(trace.kernels());
  look(trace.copies());
  look(trace.memsets());
  if (first == nullptr || first->call == kNone) return begin_ns;
  const RuntimeCall& launch = trace.runtime_calls()[first->call];
  return first->begin_ns - launch.end_ns > kQueuedNs ? first->begin_ns
                                                     : begin_ns;
}

}  // namespace

// The whole recording is treated as one step, so that it is split by the same
// code.
WholeRecording SplitWhole(const Trace& trace, const OpTree& tree,
                          RowId thread) {
  WholeRecording whole;
  whole.span = SpanOf(trace);
  if (whole.span.length() <= 0) return whole;
  if (trace.has_device_work()) {
    whole.span.begin_ns = BeginOnDevice(trace, whole.span.begin_ns);
    Steps steps;
    steps.thread = thread;
    steps.windows.push_back({.host = whole.span, .tiled = whole.span});
    steps.steady.push_back(0);
    whole.split = MakeDeviceLedger(trace, tree, steps).splits[0];
  } else if (thread != kNone) {
    whole.split = SplitOnHost(trace, thread,
                              HostTimeline(trace, tree, thread, whole.span),
                              CostOfRecording(trace, tree));
  }
  return whole;
}

}  // namespace stepscope
