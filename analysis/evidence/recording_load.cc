#include "evidence/recording_load.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/intervals.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// The host limits the step if it takes 30 % of it. On CPU-only runs this counts
// framework and program code; on runs with a GPU, idle time of the device. Our
// own choice.
constexpr double kHostShare = 0.3;
// A device that is busy for this share of the step limits it.
constexpr double kDevicePaces = 0.9;

// Returns the time in ns in `window` during which the training thread waits
// neither for batches nor for the device. Recording costs time only while the
// host works; waits hide its cost.
int64_t HostNs(const AnalysisContext& context, Span window) {
  std::vector<Span> waits;
  for (const Range& range : context.trace.ranges()) {
    if (range.kind == RangeKind::kLoader &&
        range.thread == context.steps.thread) {
      waits.push_back({range.begin_ns, range.end_ns});
    }
  }
  for (const RuntimeCall& call : context.trace.runtime_calls()) {
    const std::string_view name = context.trace.name(call.name);
    if (call.thread == context.steps.thread &&
        (name.find("Synchronize") != std::string_view::npos ||
         name.find("Memcpy") != std::string_view::npos)) {
      waits.push_back({call.begin_ns, call.end_ns});
    }
  }
  return window.length() - LengthIn(Merge(std::move(waits)), window);
}

// True if the host limits the step, so that the cost of recording lengthens the
// step.
bool HostSetsPace(const AnalysisContext& context) {
  if (!context.has_gpu) {
    return context.MeanNs(Cause::kDispatch) + context.MeanNs(Cause::kHostCode) >
           kHostShare * context.step_ns();
  }
  // A busy device hides the host's cost of recording.
  return DeviceBusyNs(context) < (1 - kHostShare) * context.step_ns();
}

// Returns the mean time of overhead records per steady step, without the
// loading of kernels, which also happens without a profiler.
double OverheadNs(const AnalysisContext& context) {
  std::vector<Span> spans;
  for (const Overhead& row : context.trace.overheads()) {
    if (context.trace.name(row.name).find("Loading") ==
        std::string_view::npos) {
      spans.push_back({row.begin_ns, row.end_ns});
    }
  }
  spans = Merge(std::move(spans));
  double overhead = 0;
  for (size_t i : context.steps.steady) {
    overhead += LengthIn(spans, context.steps.windows[i].host);
  }
  return overhead / context.steps.steady.size();
}

}  // namespace

double DeviceBusyNs(const AnalysisContext& context) {
  return context.MeanNs(Cause::kCompute) + context.MeanNs(Cause::kCopy) +
         context.MeanNs(Cause::kCommunication);
}

bool HasWaitSteps(const AnalysisContext& m) {
  const std::vector<int64_t>& waits = m.trace.run().wait_step_ns;
  return !waits.empty() && std::ranges::min(waits) > 0;
}

std::optional<WaitedSteps> CompareWithWaitSteps(const AnalysisContext& m) {
  if (!HasWaitSteps(m) ||
      (m.has_gpu && DeviceBusyNs(m) >= kDevicePaces * m.step_ns())) {
    return {};
  }
  const std::vector<int64_t>& waits = m.trace.run().wait_step_ns;
  std::vector<double> hosts;
  for (size_t i : m.steps.steady) {
    hosts.push_back(static_cast<double>(m.steps.windows[i].host.length()));
  }
  return WaitedSteps{
      .recorded_ns = Median(std::move(hosts)),
      .unrecorded_ns = Median(std::vector<double>(waits.begin(), waits.end())),
      .delay_ns = std::max(m.contention.delay_ns, 0.0)};
}

// A recorder takes about the same time for each event. So the number of events,
// compared with the host's working time, shows how much recording distorts the
// times.
RecordingLoad MeasureRecordingLoad(const AnalysisContext& context) {
  const Span window{context.steps.windows.front().host.begin_ns,
                    context.steps.windows.back().host.end_ns};
  RecordingLoad load;
  load.overhead_ns = OverheadNs(context);
  load.host_ns = static_cast<double>(HostNs(context, window));
  load.host_sets_pace = HostSetsPace(context);
  const auto inside = [&](int64_t ns) {
    return window.begin_ns <= ns && ns < window.end_ns ? 1 : 0;
  };
  for (const PythonFrame& row : context.trace.python_frames()) {
    load.events += inside(row.begin_ns);
  }
  for (const Allocation& row : context.trace.allocations()) {
    load.allocations += inside(row.time_ns);
  }
  if (context.steps.thread == kNone) return load;
  // The autograd threads work while the training thread waits in backward().
  std::vector<RowId> threads =
      AutogradThreads(context.tree, context.steps.thread);
  threads.push_back(context.steps.thread);
  for (RowId thread : threads) {
    for (RowId row : context.tree.of_thread(thread)) {
      load.events += inside(context.trace.ops()[row].begin_ns);
    }
  }
  for (const RuntimeCall& row : context.trace.runtime_calls()) {
    if (std::ranges::count(threads, row.thread) > 0) {
      load.events += inside(row.begin_ns);
    }
  }
  return load;
}

double LargestUnrecordedNs(const AnalysisContext& m, double ns, double events) {
  const double recorded = m.step_ns(), left = m.gain_step_ms() * 1e6;
  const double events_ns = m.recorder.op_ns * events;
  if (!m.recorder.estimated) {
    return std::max(ns - events_ns, ns * left / recorded);
  }
  const double elsewhere = std::max(0.0, recorded - left - events_ns);
  return std::min(left, ns * left / (recorded - elsewhere));
}

}  // namespace stepscope
