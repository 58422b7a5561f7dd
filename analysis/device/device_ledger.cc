#include "device/device_ledger.h"

#include <stepscope/kernel_class.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "device/allocator_calls.h"
#include "ops/activity.h"
#include "ops/by_name.h"
#include "ops/contains.h"
#include "ops/sorted_parts.h"
#include "steps/steady_steps.h"
#include "timeline/time_split.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// An activity, and what launched it.
struct Launched {
  Span span;
  RowId call = kNone;
  bool graph = false;
};

// What runs on one device. The three lists of spans are disjoint: where several
// kinds overlap, the time counts as compute if there is any, else as
// communication.
struct DeviceRows {
  std::vector<Span> compute, communication, copy;
  std::vector<Span> kernels;  // compute and communication together, disjoint
  std::set<int64_t> kernel_streams;
  std::vector<Launched> activities;  // sorted by begin
};

// The device with the most activity time; overlapping activities count twice.
int32_t BusiestDevice(const Trace& trace) {
  std::map<int32_t, int64_t> busy;
  for (const Kernel& row : trace.kernels()) {
    busy[row.device] += row.end_ns - row.begin_ns;
  }
  for (const Copy& row : trace.copies()) {
    busy[row.device] += row.end_ns - row.begin_ns;
  }
  for (const Memset& row : trace.memsets()) {
    busy[row.device] += row.end_ns - row.begin_ns;
  }
  return std::ranges::max_element(
             busy, {}, [](const auto& entry) { return entry.second; })
      ->first;
}

bool LaunchesGraph(std::string_view call) {
  return Contains(call, "GraphLaunch");
}
bool Launches(std::string_view call) { return Contains(call, "Launch"); }

// Returns the union of two disjoint lists as a disjoint list.
std::vector<Span> Unite(const std::vector<Span>& a,
                        const std::vector<Span>& b) {
  std::vector<Span> both(a.size() + b.size());
  std::ranges::merge(a, b, both.begin(), {}, &Span::begin_ns, &Span::begin_ns);
  return Merge(std::move(both));
}

DeviceRows RowsOf(const Trace& trace, int32_t device) {
  DeviceRows rows;
  ByName is_collective(trace, &IsCollectiveKernel);
  ByName launches_graph(trace, &LaunchesGraph);
  rows.activities.reserve(trace.kernels().size() + trace.copies().size() +
                          trace.memsets().size());
  const auto add = [&](const DeviceWork& activity, std::vector<Span>& kind,
                       int64_t graph) {
    const Span span{activity.begin_ns, activity.end_ns};
    kind.push_back(span);
    const bool from_graph =
        graph != 0 ||
        (activity.call != kNone &&
         launches_graph(trace.runtime_calls()[activity.call].name));
    rows.activities.push_back({span, activity.call, from_graph});
  };
  const Kernel* last = nullptr;
  for (const Kernel& row : trace.kernels()) {
    if (row.device != device) continue;
    add(row, is_collective(row.name) ? rows.communication : rows.compute,
        row.graph);
    // Most kernels run on the stream of the kernel before them.
    if (last == nullptr || row.stream != last->stream) {
      rows.kernel_streams.insert(row.stream);
    }
    last = &row;
  }
  const size_t kernels = rows.activities.size();
  for (const Copy& row : trace.copies()) {
    if (row.device == device) add(row, rows.copy, 0);
  }
  const size_t copies = rows.activities.size();
  for (const Memset& row : trace.memsets()) {
    if (row.device == device) add(row, rows.copy, 0);
  }
  MergeSortedParts(
      rows.activities, {kernels, copies, rows.activities.size()},
      [](const Launched& activity) { return activity.span.begin_ns; });
  rows.compute = Merge(std::move(rows.compute));
  rows.communication =
      Subtract(Merge(std::move(rows.communication)), rows.compute);
  rows.kernels = Unite(rows.compute, rows.communication);
  rows.copy = Subtract(Merge(std::move(rows.copy)), rows.kernels);
  return rows;
}

// The timelines of threads that launch, with blocking and allocator calls
// marked in them. A timeline is made when it is first needed.
class HostViews {
 public:
  // `host`: the timeline of thread `training`.
  HostViews(const Trace& trace, const OpTree& tree, RowId training, Span window,
            const std::vector<Segment>& host, const RecorderCost& cost)
      : trace_(trace),
        tree_(tree),
        training_(training),
        window_(window),
        host_(host),
        cost_(cost),
        kind_of_(trace, &KindOf) {
    for (RowId row : AutogradThreads(tree, training)) joined_.push_back(row);
    if (training != kNone) joined_.push_back(training);
  }

  // Adds what `thread` did in `span` to `split`. kNone means the training
  // thread. The autograd threads work while the training thread waits in
  // backward(), so they share its timeline.
  void Split(RowId thread, Span span, CauseTimes& split) {
    if (span.length() <= 0) return;
    if (thread == kNone || std::ranges::count(joined_, thread)) {
      thread = training_;
    }
    if (thread == kNone) {
      split[Cause::kUnknown] += span.length();
      return;
    }
    const std::vector<Segment>& view = ViewOf(thread);
    int64_t left = span.length();
    CauseTimes part_of_span;
    double ops = 0;
    for (auto it = std::ranges::upper_bound(view, span.begin_ns, {},
                                            &Segment::end_ns);
         it != view.end() && it->begin_ns < span.end_ns; ++it) {
      const int64_t part = std::min(it->end_ns, span.end_ns) -
                           std::max(it->begin_ns, span.begin_ns);
      // The device does the computing here, so an op that "computes" on the
      // host only dispatches. So does an op that issues a collective;
      // communication without an op is a wait for a collective of another
      // thread.
      const bool issues =
          it->cause == Cause::kCompute ||
          (it->cause == Cause::kCommunication && it->op != kNone);
      part_of_span[issues ? Cause::kDispatch : it->cause] += part;
      left -= part;
      // The cost of recording an op counts once, in the gap in which the op
      // starts.
      ops += it->op != kNone && it->begin_ns >= span.begin_ns &&
             trace_.ops()[it->op].begin_ns == it->begin_ns;
    }
    part_of_span[Cause::kUnknown] += left;
    double ns = ops * cost_.op_ns + CallsIn(thread, span) * cost_.call_ns;
    if (cost_.frame_ns > 0) {
      ns += FramesIn(trace_, thread, span) * cost_.frame_ns;
    }
    MoveToProfiler(ns, part_of_span);
    for (size_t i = 0; i < kCauses; ++i) {
      const auto cause = static_cast<Cause>(i);
      split[cause] += part_of_span[cause];
    }
  }

 private:
  enum class CallKind : uint8_t { kOther, kSync, kCopy, kAllocator };

  static CallKind KindOf(std::string_view name) {
    if (Contains(name, "Synchronize")) return CallKind::kSync;
    if (Contains(name, "Memcpy")) return CallKind::kCopy;
    return AllocatorCallOf(name) ? CallKind::kAllocator : CallKind::kOther;
  }

  // The number of CUDA calls that start in `span`, including one that starts at
  // its end (the launch that ends the gap).
  double CallsIn(RowId thread, Span span) {
    const std::vector<int64_t>& begins = calls_[thread];
    return static_cast<double>(std::ranges::upper_bound(begins, span.end_ns) -
                               std::ranges::lower_bound(begins, span.begin_ns));
  }

  const std::vector<Segment>& ViewOf(RowId thread) {
    const auto known = views_.find(thread);
    if (known != views_.end()) return known->second;
    std::vector<Segment> view =
        thread == training_ ? host_
                            : HostTimeline(trace_, tree_, thread, window_);
    std::vector<Claim> sync, copy, allocator;
    std::vector<int64_t>& begins = calls_[thread];
    for (const RuntimeCall& call : trace_.runtime_calls()) {
      const bool mine =
          call.thread == thread ||
          (thread == training_ && std::ranges::count(joined_, call.thread));
      if (!mine) continue;
      begins.push_back(call.begin_ns);
      const CallKind kind = kind_of_(call.name);
      if (kind == CallKind::kOther) continue;
      const Claim claim{{call.begin_ns, call.end_ns}};
      if (kind == CallKind::kSync) {
        (InCopyOp(call) ? copy : sync).push_back(claim);
      } else if (kind == CallKind::kAllocator) {
        allocator.push_back(claim);
      } else if (call.end_ns - call.begin_ns > kQueuedLatencyNs) {
        copy.push_back(claim);
      }
    }
    std::ranges::sort(begins);
    std::vector<Segment> spare;
    Overlay(view, Disjoint(std::move(allocator)), Cause::kAllocator, spare);
    Overlay(view, Disjoint(std::move(copy)), Cause::kBlockingCopy, spare);
    Overlay(view, Disjoint(std::move(sync)), Cause::kSync, spare);
    return views_[thread] = std::move(view);
  }

  // True if the synchronisation belongs to a copy in the same op: together they
  // are one blocking copy.
  bool InCopyOp(const RuntimeCall& call) const {
    if (call.op == kNone) return false;
    const std::string_view op = trace_.name(trace_.ops()[call.op].name);
    return op == "aten::copy_" || op == "aten::_local_scalar_dense" ||
           op == "aten::_to_copy";
  }

  const Trace& trace_;
  const OpTree& tree_;
  RowId training_;
  Span window_;
  const std::vector<Segment>& host_;
  RecorderCost cost_;
  std::vector<RowId> joined_;
  ByName<CallKind> kind_of_;
  std::unordered_map<RowId, std::vector<Segment>> views_;
  std::unordered_map<RowId, std::vector<int64_t>> calls_;  // when they begin
};

// Splits `idle`, in which the device has no activity, by cause. `next` is the
// activity that ends it; nullptr after the last activity.
void ShareOut(const Trace& trace, HostViews& hosts, Span idle,
              const Launched* next, CauseTimes& split) {
  if (next == nullptr) {  // only the host can explain it
    hosts.Split(kNone, idle, split);
    return;
  }
  if (next->call == kNone) {
    if (trace.runtime_calls().empty() && idle.length() > kQueuedLatencyNs) {
      // The file has no runtime calls at all: assume that the host was late.
      hosts.Split(kNone, idle, split);
    } else {
      split[next->graph ? Cause::kGraphOpaque : Cause::kUnknown] +=
          idle.length();
    }
    return;
  }
  const RuntimeCall& call = trace.runtime_calls()[next->call];
  // The launch came before the gap, so the activity was queued and waited.
  if (call.begin_ns <= idle.begin_ns) {
    const int64_t gap = next->span.begin_ns - idle.begin_ns;
    const Cause cause = gap <= kQueuedLatencyNs ? Cause::kKernelLatency
                        : next->graph           ? Cause::kGraphOpaque
                                                : Cause::kDependency;
    split[cause] += idle.length();
    return;
  }
  const int64_t launch = std::min(call.begin_ns, idle.end_ns);
  hosts.Split(call.thread, {idle.begin_ns, launch}, split);
  // The time from the start of the call to the start of the activity: first the
  // call, then the device's latency.
  const Span late{launch, idle.end_ns};
  if (late.length() <= kQueuedLatencyNs) {
    split[Cause::kKernelLatency] += late.length();
    return;
  }
  const int64_t returned = std::clamp(call.end_ns, launch, idle.end_ns);
  split[Cause::kDispatch] += returned - launch;
  const int64_t after = idle.end_ns - returned;
  split[after <= kQueuedLatencyNs ? Cause::kKernelLatency
        : next->graph             ? Cause::kGraphOpaque
                                  : Cause::kDependency] += after;
}

}  // namespace

DeviceLedger MakeDeviceLedger(const Trace& trace, const OpTree& tree,
                              const Steps& steps,
                              const std::vector<Segment>& host,
                              const RecorderCost& cost) {
  DeviceLedger ledger;
  ledger.device = BusiestDevice(trace);
  DeviceRows rows = RowsOf(trace, ledger.device);
  ledger.activities = static_cast<int64_t>(rows.activities.size());
  ledger.unmatched =
      std::ranges::count(rows.activities, kNone, &Launched::call);

  const Span window{steps.windows.front().tiled.begin_ns,
                    steps.windows.back().tiled.end_ns};
  HostViews hosts(trace, tree, steps.thread, window, host, cost);
  const std::vector<Span> busy = Unite(rows.kernels, rows.copy);

  for (const StepWindow& step : steps.windows) {
    CauseTimes split;
    split[Cause::kCompute] = LengthIn(rows.compute, step.tiled);
    split[Cause::kCommunication] = LengthIn(rows.communication, step.tiled);
    split[Cause::kCopy] = LengthIn(rows.copy, step.tiled);
    const std::vector<Span> whole = {step.tiled};
    for (const Span& idle : Subtract(whole, Clip(busy, step.tiled))) {
      if (idle.length() <= 0) continue;
      const auto next = std::ranges::lower_bound(
          rows.activities, idle.end_ns, {},
          [](const Launched& activity) { return activity.span.begin_ns; });
      ShareOut(trace, hosts, idle,
               next == rows.activities.end() ? nullptr : &*next, split);
    }
    ledger.splits.push_back(split);
  }
  ByName launches(trace, &Launches);
  for (const RuntimeCall& call : trace.runtime_calls()) {
    if (!launches(call.name)) continue;
    ledger.launches_per_step += InSteadyStep(steps, call.begin_ns);
  }
  ledger.launches_per_step /= static_cast<int64_t>(steps.steady.size());
  ledger.kernels = std::move(rows.kernels);
  ledger.compute = std::move(rows.compute);
  ledger.kernel_streams = std::move(rows.kernel_streams);
  return ledger;
}

}  // namespace stepscope
