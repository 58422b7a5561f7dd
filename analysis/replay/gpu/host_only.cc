#include "replay/gpu/host_only.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "device/gaps.h"
#include "ops/contains.h"
#include "ops/intervals.h"
#include "replay/gpu/device_waits.h"

namespace stepscope {
namespace {

// True for calls that are long because of their own work (getting memory,
// loading code) and not because they wait.
bool WorksItself(std::string_view name) {
  if (Contains(name, "Free") || Contains(name, "Unregister")) return false;
  return Contains(name, "lloc") || Contains(name, "Register") ||
         Contains(name, "ModuleLoad") || Contains(name, "LibraryLoad");
}

// Returns the disjoint spans in which the device is busy. They include its
// latency: up to 10 us between the launch of an activity, or the end of the
// activity before it, and its start. They also include the whole time from the
// launch of a graph, because not all of its nodes need to be recorded.
std::vector<Span> Occupied(const Trace& trace, const DeviceProgram& program) {
  std::vector<Span> spans;
  spans.reserve(program.activities.size());
  for (const DeviceNode& activity : program.activities) {
    Span span = activity.span;
    const RowId call = ActivityOf(trace, activity.ref).call;
    if (call != kNone) {
      const int64_t launched = trace.runtime_calls()[call].begin_ns;
      const int64_t earliest =
          activity.in_graph ? launched : span.begin_ns - kQueuedLatencyNs;
      span.begin_ns = std::min(span.begin_ns, std::max(launched, earliest));
    }
    spans.push_back(span);
  }
  std::vector<Span> occupied;
  for (const Span& span : Merge(std::move(spans))) {
    if (!occupied.empty() &&
        span.begin_ns - occupied.back().end_ns <= kQueuedLatencyNs) {
      occupied.back().end_ns = span.end_ns;
    } else {
      occupied.push_back(span);
    }
  }
  return occupied;
}

bool Waits(const DeviceProgram& program, RowId call) {
  const uint32_t node = program.node_of_call[call];
  return node != kNoActivity && program.hosts[node].wait != NodeWait::kNothing;
}

// Returns the disjoint spans of the long calls of the chain, and of launches
// into a full queue, without the time that every launch takes.
std::vector<Span> LongCalls(const Trace& trace, const DeviceProgram& program) {
  const int64_t launch_ns = UsualLaunchNs(program);
  std::vector<bool> ours(trace.threads().size());
  for (RowId thread : program.threads) ours[thread] = true;
  std::vector<Span> spans;
  for (RowId row = 0; row < trace.runtime_calls().size(); ++row) {
    const RuntimeCall& call = trace.runtime_calls()[row];
    if (call.thread == kNone || !ours[call.thread]) continue;
    const std::string_view name = trace.name(call.name);
    if (WorksItself(name)) continue;
    const bool launches = Contains(name, "Launch");
    if (call.end_ns - call.begin_ns <= kShortCallNs &&
        !(launches && Waits(program, row))) {
      continue;
    }
    spans.push_back({call.begin_ns + (launches ? launch_ns : 0), call.end_ns});
  }
  return Merge(std::move(spans));
}

}  // namespace

std::vector<int64_t> HostOnlyNs(const Trace& trace, const Steps& steps,
                                const DeviceProgram& program) {
  const std::vector<Span> waiting =
      Intersect(LongCalls(trace, program), Occupied(trace, program));
  std::vector<int64_t> host_ns;
  host_ns.reserve(steps.windows.size());
  for (size_t i = 0; i < steps.windows.size(); ++i) {
    const Span& host = steps.windows[i].host;
    const Span since{i == 0 ? host.begin_ns : steps.windows[i - 1].host.end_ns,
                     host.end_ns};
    host_ns.push_back(since.length() - LengthIn(waiting, since));
  }
  return host_ns;
}

}  // namespace stepscope
