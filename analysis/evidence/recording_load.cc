#include "evidence/recording_load.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "ops/intervals.h"

namespace stepscope {
namespace {

constexpr double kHostShare = 0.3;  // of the step, where the host sets the pace

// Time in `window` that the training thread did not spend waiting for batches
// or for the device.
int64_t HostNs(const AnalysisContext& m, Span window) {
  std::vector<Span> waits;
  for (const Range& range : m.trace.ranges()) {
    if (range.kind == RangeKind::kLoader && range.thread == m.steps.thread) {
      waits.push_back({range.begin_ns, range.end_ns});
    }
  }
  for (const RuntimeCall& call : m.trace.runtime_calls()) {
    const std::string_view name = m.trace.name(call.name);
    if (call.thread == m.steps.thread &&
        (name.find("Synchronize") != std::string_view::npos ||
         name.find("Memcpy") != std::string_view::npos)) {
      waits.push_back({call.begin_ns, call.end_ns});
    }
  }
  return window.length() - LengthIn(Merge(std::move(waits)), window);
}

// Whether the host sets the pace, so that recording it lengthens the step.
bool HostSetsPace(const AnalysisContext& m) {
  if (!m.has_gpu) {
    return m.MeanNs(Cause::kDispatch) + m.MeanNs(Cause::kHostCode) >
           kHostShare * m.step_ns();
  }
  return DeviceBusyNs(m) < (1 - kHostShare) * m.step_ns();
}

// Mean per steady step, of what the profiler and the driver took for
// themselves. Loading kernels happens without a profiler, too.
double OverheadNs(const AnalysisContext& m) {
  std::vector<Span> spans;
  for (const Overhead& row : m.trace.overheads()) {
    if (m.trace.name(row.name).find("Loading") == std::string_view::npos) {
      spans.push_back({row.begin_ns, row.end_ns});
    }
  }
  spans = Merge(std::move(spans));
  double overhead = 0;
  for (size_t i : m.steps.steady) {
    overhead += LengthIn(spans, m.steps.windows[i].host);
  }
  return overhead / m.steps.steady.size();
}

}  // namespace

double DeviceBusyNs(const AnalysisContext& m) {
  return m.MeanNs(Cause::kCompute) + m.MeanNs(Cause::kCopy) +
         m.MeanNs(Cause::kCommunication);
}

RecordingLoad MeasureRecordingLoad(const AnalysisContext& m) {
  const Span window{m.steps.windows.front().host.begin_ns,
                    m.steps.windows.back().host.end_ns};
  RecordingLoad load;
  load.overhead_ns = OverheadNs(m);
  load.host_ns = static_cast<double>(HostNs(m, window));
  load.host_sets_pace = HostSetsPace(m);
  const auto inside = [&](int64_t ns) {
    return window.begin_ns <= ns && ns < window.end_ns ? 1 : 0;
  };
  for (const PythonFrame& row : m.trace.python_frames()) {
    load.events += inside(row.begin_ns);
  }
  for (const Allocation& row : m.trace.allocations()) {
    load.allocations += inside(row.time_ns);
  }
  if (m.steps.thread != kNone) {
    for (RowId row : m.tree.of_thread(m.steps.thread)) {
      load.events += inside(m.trace.ops()[row].begin_ns);
    }
  }
  return load;
}

}  // namespace stepscope
