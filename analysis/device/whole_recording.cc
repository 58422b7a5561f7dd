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
// Launching takes some 5 to 20 us; loading the kernel or its library first
// takes milliseconds.
constexpr int64_t kLoadingLaunchNs = 1'000'000;
// A recording is not judged as a step if starting up takes this share of it.
constexpr double kMostStartUp = 0.3;

// The time from the first start to the last end of all rows. Device work may go
// on after the host's last row, and the other way round.
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
  // Runtime calls count only if there is nothing else, because they may start
  // long before the rest, while libraries are loaded.
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

Steps OneStep(Span span, RowId thread) {
  Steps steps;
  steps.thread = thread;
  steps.windows.push_back({.host = span, .tiled = span});
  steps.steady.push_back(0);
  steps.is_recording = true;
  return steps;
}

Span WindowOf(const Trace& trace) {
  Span span = SpanOf(trace);
  if (trace.has_device_work() && span.length() > 0) {
    span.begin_ns = BeginOnDevice(trace, span.begin_ns);
  }
  return span;
}

// Adds the pauses of kLoadingLaunchNs or more inside ops of `thread` that
// launch, because they load a library. Ops that launch nothing are left out,
// because they may compute on the host.
void AddPauses(const Trace& trace, RowId thread, std::vector<Span>& slow) {
  std::vector<bool> launches(trace.ops().size());
  std::vector<int64_t> bounds;
  for (const RuntimeCall& call : trace.runtime_calls()) {
    if (call.thread != thread) continue;
    bounds.push_back(call.begin_ns);
    bounds.push_back(call.end_ns);
    for (RowId op = call.op; op != kNone && !launches[op];
         op = trace.ops()[op].parent) {
      launches[op] = true;
    }
  }
  std::vector<Span> launching;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (op.thread != thread) continue;
    bounds.push_back(op.begin_ns);
    bounds.push_back(op.end_ns);
    if (launches[row]) launching.push_back({op.begin_ns, op.end_ns});
  }
  std::ranges::sort(bounds);
  std::vector<Span> pauses;
  for (size_t i = 1; i < bounds.size(); ++i) {
    if (bounds[i] - bounds[i - 1] >= kLoadingLaunchNs) {
      pauses.push_back({bounds[i - 1], bounds[i]});
    }
  }
  for (const Span& span : Intersect(pauses, Merge(std::move(launching)))) {
    slow.push_back(span);
  }
}

// Returns the time of one-off work, and of launches and ops that are slow
// because they load kernels or libraries, as far as the device is idle
// meanwhile.
int64_t StartUpNs(const Trace& trace, RowId thread, Span window) {
  if (!trace.has_device_work()) return 0;
  std::vector<Span> slow = OneOffSpans(trace);
  AddPauses(trace, thread, slow);
  std::vector<Span> busy;
  const auto note = [&](const DeviceWork& work) {
    busy.push_back({work.begin_ns, work.end_ns});
    if (work.call == kNone) return;
    const RuntimeCall& call = trace.runtime_calls()[work.call];
    // A full queue delays launches, too, but then the device is busy.
    if (call.end_ns - call.begin_ns >= kLoadingLaunchNs) {
      slow.push_back({call.begin_ns, call.end_ns});
    }
  };
  for (const Kernel& row : trace.kernels()) note(row);
  for (const Copy& row : trace.copies()) note(row);
  for (const Memset& row : trace.memsets()) note(row);
  slow = Merge(std::move(slow));
  return LengthIn(slow, window) -
         LengthIn(Intersect(slow, Merge(std::move(busy))), window);
}

}  // namespace

bool StartUp::is_most() const {
  return static_cast<double>(ns) >= kMostStartUp * static_cast<double>(of_ns);
}

StartUp MeasureStartUp(const Trace& trace, RowId thread) {
  const Span window = WindowOf(trace);
  if (window.length() <= 0) return {};
  return {StartUpNs(trace, thread, window), window.length()};
}

void TakeWholeRecording(const Trace& trace, Steps& steps) {
  if (!steps.empty() || steps.thread == kNone ||
      MeasureStartUp(trace, steps.thread).is_most()) {
    return;
  }
  steps = OneStep(WindowOf(trace), steps.thread);
}

// Treats the whole recording as one step, to split it with the same code.
WholeRecording SplitWhole(const Trace& trace, const OpTree& tree,
                          RowId thread) {
  WholeRecording whole;
  whole.span = WindowOf(trace);
  if (whole.span.length() <= 0) return whole;
  const std::vector<Segment> host =
      HostTimeline(trace, tree, thread, whole.span);
  if (trace.has_device_work()) {
    whole.split =
        MakeDeviceLedger(trace, tree, OneStep(whole.span, thread), host)
            .splits[0];
  } else if (thread != kNone) {
    whole.split =
        SplitOnHost(trace, thread, host, CostOfRecording(trace, tree));
  }
  return whole;
}

}  // namespace stepscope
