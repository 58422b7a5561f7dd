#include "device/device_ledger.h"

#include <stepscope/kernel_class.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ops/sorted_parts.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

constexpr int64_t kQueuedGapNs = 10'000;

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct Launched {
  Span span;
  RowId call = kNone;
  bool graph = false;
};

// What runs on one device, by kind and all together.
struct DeviceRows {
  std::vector<Span> compute, communication, copy;
  std::vector<Launched> works;  // sorted by begin
};

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

DeviceRows RowsOf(const Trace& trace, int32_t device) {
  DeviceRows rows;
  std::vector<int8_t> collective(trace.name_count(), -1);
  std::vector<bool> launches_graph(trace.name_count());
  for (NameId name = 0; name < trace.name_count(); ++name)
    launches_graph[name] = Has(trace.name(name), "GraphLaunch");
  rows.works.reserve(trace.kernels().size() + trace.copies().size() +
                     trace.memsets().size());
  const auto add = [&](const DeviceWork& work, std::vector<Span>& kind,
                       int64_t graph) {
    const Span span{work.begin_ns, work.end_ns};
    kind.push_back(span);
    const bool from_graph =
        graph != 0 || (work.call != kNone &&
                       launches_graph[trace.runtime_calls()[work.call].name]);
    rows.works.push_back({span, work.call, from_graph});
  };
  for (const Kernel& row : trace.kernels()) {
    if (row.device != device) continue;
    int8_t& known = collective[row.name];
    if (known < 0) known = IsCollectiveKernel(trace.name(row.name));
    add(row, known ? rows.communication : rows.compute, row.graph);
  }
  const size_t kernels = rows.works.size();
  for (const Copy& row : trace.copies()) {
    if (row.device == device) add(row, rows.copy, 0);
  }
  const size_t copies = rows.works.size();
  for (const Memset& row : trace.memsets()) {
    if (row.device == device) add(row, rows.copy, 0);
  }
  MergeSortedParts(rows.works, {kernels, copies, rows.works.size()},
                   [](const Launched& work) { return work.span.begin_ns; });
  rows.compute = Merge(std::move(rows.compute));
  rows.communication =
      Subtract(Merge(std::move(rows.communication)), rows.compute);
  std::vector<Span> above = rows.compute;
  above.insert(above.end(), rows.communication.begin(),
               rows.communication.end());
  rows.copy = Subtract(Merge(std::move(rows.copy)), Merge(std::move(above)));
  return rows;
}

// Host timelines of launching threads, with blocking and allocator calls.
class HostViews {
 public:
  HostViews(const Trace& trace, const OpTree& tree, RowId training, Span window)
      : trace_(trace), tree_(tree), training_(training), window_(window) {
    for (RowId row : AutogradThreads(trace, training)) joined_.push_back(row);
    if (training != kNone) joined_.push_back(training);
    for (NameId name = 0; name < trace.name_count(); ++name)
      kinds_.push_back(KindOf(trace.name(name)));
  }

  // Adds what `thread` did in `span` to `split`. The autograd threads work for
  // the training thread, so all of them share one view.
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
    for (auto it = std::ranges::upper_bound(view, span.begin_ns, {},
                                            &Segment::end_ns);
         it != view.end() && it->begin_ns < span.end_ns; ++it) {
      const int64_t part = std::min(it->end_ns, span.end_ns) -
                           std::max(it->begin_ns, span.begin_ns);
      // Ops that compute, or issue a collective, are the host's dispatching
      // here; beside an op it is a wait for a collective of another thread.
      const bool issues =
          it->cause == Cause::kCompute ||
          (it->cause == Cause::kCommunication && it->op != kNone);
      split[issues ? Cause::kDispatch : it->cause] += part;
      left -= part;
    }
    split[Cause::kUnknown] += left;
  }

 private:
  enum class CallKind : uint8_t { kOther, kSync, kCopy, kAllocator };

  static CallKind KindOf(std::string_view name) {
    if (Has(name, "Synchronize")) return CallKind::kSync;
    if (Has(name, "Memcpy")) return CallKind::kCopy;
    const bool allocates = Has(name, "Malloc") || Has(name, "Free") ||
                           Has(name, "HostAlloc") || Has(name, "HostRegister");
    return allocates ? CallKind::kAllocator : CallKind::kOther;
  }

  const std::vector<Segment>& ViewOf(RowId thread) {
    const auto known = views_.find(thread);
    if (known != views_.end()) return known->second;
    std::vector<Segment> view = HostTimeline(trace_, tree_, thread, window_);
    std::vector<Claim> sync, copy, allocator;
    for (const RuntimeCall& call : trace_.runtime_calls()) {
      const CallKind kind = kinds_[call.name];
      if (kind == CallKind::kOther) continue;
      const bool mine =
          call.thread == thread ||
          (thread == training_ && std::ranges::count(joined_, call.thread));
      if (!mine) continue;
      const Claim claim{{call.begin_ns, call.end_ns}};
      if (kind == CallKind::kSync) {
        (InCopyOp(call) ? copy : sync).push_back(claim);
      } else if (kind == CallKind::kAllocator) {
        allocator.push_back(claim);
      } else if (call.end_ns - call.begin_ns > kQueuedGapNs) {
        copy.push_back(claim);
      }
    }
    std::vector<Segment> spare;
    Overlay(view, Disjoint(std::move(allocator)), Cause::kAllocator, spare);
    Overlay(view, Disjoint(std::move(copy)), Cause::kBlockingCopy, spare);
    Overlay(view, Disjoint(std::move(sync)), Cause::kSync, spare);
    return views_[thread] = std::move(view);
  }

  // A copy and the wait behind it in one op are one blocking copy.
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
  std::vector<RowId> joined_;
  std::vector<CallKind> kinds_;  // by name
  std::unordered_map<RowId, std::vector<Segment>> views_;
};

// Shares out one stretch without device work that ends when `next` starts.
void ShareOut(const Trace& trace, HostViews& hosts, Span idle,
              const Launched* next, CauseTimes& split) {
  if (next == nullptr) {  // nothing follows: the host is all there is
    hosts.Split(kNone, idle, split);
    return;
  }
  if (next->call == kNone) {
    if (trace.runtime_calls().empty() && idle.length() > kQueuedGapNs) {
      hosts.Split(kNone, idle, split);  // no calls in sight: as if it were late
    } else {
      split[next->graph ? Cause::kGraphOpaque : Cause::kUnknown] +=
          idle.length();
    }
    return;
  }
  const RuntimeCall& call = trace.runtime_calls()[next->call];
  if (call.begin_ns <= idle.begin_ns) {
    const int64_t gap = next->span.begin_ns - idle.begin_ns;
    const Cause cause = gap <= kQueuedGapNs ? Cause::kKernelLatency
                        : next->graph       ? Cause::kGraphOpaque
                                            : Cause::kDependency;
    split[cause] += idle.length();
    return;
  }
  const int64_t launch = std::min(call.begin_ns, idle.end_ns);
  hosts.Split(call.thread, {idle.begin_ns, launch}, split);
  // From the call to the start of the work: the call, then the device.
  const Span late{launch, idle.end_ns};
  if (late.length() <= kQueuedGapNs) {
    split[Cause::kKernelLatency] += late.length();
    return;
  }
  const int64_t returned = std::clamp(call.end_ns, launch, idle.end_ns);
  split[Cause::kDispatch] += returned - launch;
  const int64_t after = idle.end_ns - returned;
  split[after <= kQueuedGapNs ? Cause::kKernelLatency
        : next->graph         ? Cause::kGraphOpaque
                              : Cause::kDependency] += after;
}

}  // namespace

DeviceLedger MakeDeviceLedger(const Trace& trace, const OpTree& tree,
                              const Steps& steps) {
  DeviceLedger ledger;
  ledger.device = BusiestDevice(trace);
  const DeviceRows rows = RowsOf(trace, ledger.device);
  ledger.works = static_cast<int64_t>(rows.works.size());
  ledger.unmatched = std::ranges::count(rows.works, kNone, &Launched::call);

  const Span window{steps.windows.front().tiled.begin_ns,
                    steps.windows.back().tiled.end_ns};
  HostViews hosts(trace, tree, steps.thread, window);
  std::vector<Span> busy = rows.compute;
  busy.insert(busy.end(), rows.communication.begin(), rows.communication.end());
  busy.insert(busy.end(), rows.copy.begin(), rows.copy.end());
  busy = Merge(std::move(busy));

  for (const StepWindow& step : steps.windows) {
    CauseTimes split;
    split[Cause::kCompute] = LengthIn(rows.compute, step.tiled);
    split[Cause::kCommunication] = LengthIn(rows.communication, step.tiled);
    split[Cause::kCopy] = LengthIn(rows.copy, step.tiled);
    const std::vector<Span> whole = {step.tiled};
    for (const Span& idle : Subtract(whole, Clip(busy, step.tiled))) {
      if (idle.length() <= 0) continue;
      const auto next = std::ranges::lower_bound(
          rows.works, idle.end_ns, {},
          [](const Launched& work) { return work.span.begin_ns; });
      ShareOut(trace, hosts, idle, next == rows.works.end() ? nullptr : &*next,
               split);
    }
    ledger.splits.push_back(split);
  }
  std::vector<bool> launches(trace.name_count());
  for (NameId name = 0; name < trace.name_count(); ++name)
    launches[name] = Has(trace.name(name), "Launch");
  for (const RuntimeCall& call : trace.runtime_calls()) {
    if (!launches[call.name]) continue;
    ledger.launches_per_step += InSteadyStep(steps, call.begin_ns);
  }
  ledger.launches_per_step /= static_cast<int64_t>(steps.steady.size());
  return ledger;
}

}  // namespace stepscope
