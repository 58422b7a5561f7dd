#include "device/collectives.h"

#include <stepscope/kernel_class.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "device/collective_calls.h"
#include "device/device_ledger.h"
#include "ops/by_name.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// Returns one collective per kernel of a collective. Its exposed time is the
// part that no other kernel of its device overlaps.
std::vector<Collective> FromKernels(const Trace& trace,
                                    const CollectiveCalls& calls) {
  ByName is_collective(trace, &IsCollectiveKernel);
  std::vector<Collective> found;
  std::vector<Span> compute;
  std::unordered_map<int32_t, std::vector<Span>> compute_of;
  for (RowId row = 0; row < trace.kernels().size(); ++row) {
    const Kernel& kernel = trace.kernels()[row];
    if (!is_collective(kernel.name)) continue;
    Collective one;
    one.kind = CollectiveKindOf(trace.name(kernel.name));
    one.moved = {kernel.begin_ns, kernel.end_ns};
    one.float32 = ReducesFloat32(trace.name(kernel.name));
    one.kernel = row;
    one.communication = kernel.communication;
    if (kernel.communication != kNone) {
      calls.ApplyMetadata(trace.communications()[kernel.communication], one);
    }
    if (kernel.call != kNone) {
      const RuntimeCall& call = trace.runtime_calls()[kernel.call];
      one.issued = {call.begin_ns, call.end_ns};
      one.thread = call.thread;
      one.step = calls.StepAt(call.begin_ns);
      calls.NameByRange(one);
    } else {
      // Without a recorded launch, only the time on the device shows the step.
      one.step = calls.TileAt(kernel.begin_ns);
    }
    calls.Describe(kernel.op, one);
    calls.MarkGradient(one);
    compute_of[kernel.device];  // an entry per device with collectives
    found.push_back(one);
  }
  if (found.empty()) return found;
  for (const Kernel& kernel : trace.kernels()) {
    const auto device = compute_of.find(kernel.device);
    if (device == compute_of.end() || is_collective(kernel.name)) continue;
    device->second.push_back({kernel.begin_ns, kernel.end_ns});
  }
  for (auto& [device, spans] : compute_of) spans = Merge(std::move(spans));
  std::unordered_map<int32_t, int64_t> owned;
  for (Collective& one : found) {
    const int32_t device = trace.kernels()[one.kernel].device;
    Span span = one.moved;
    // A stage of a pipeline may wait for messages on several streams at once.
    // The time counts only for the message that started first.
    if (one.kind == CollectiveKind::kPointToPoint) {
      int64_t& until = owned.try_emplace(device, INT64_MIN).first->second;
      span.begin_ns = std::clamp(until, span.begin_ns, span.end_ns);
      until = std::max(until, span.end_ns);
    }
    one.exposed_ns = span.length() - LengthIn(compute_of[device], span);
  }
  return found;
}

// Matches ranges on gloo's threads with the calls that queued them. gloo runs
// collectives on its own threads, where a range does not name its call. But
// gloo works in order, so a range belongs to the first call of its kind that no
// earlier range has taken.
class CallQueue {
 public:
  explicit CallQueue(const Trace& trace) : trace_(trace) {
    for (RowId row = 0; row < trace.ops().size(); ++row) {
      const std::string_view name = trace.name(trace.ops()[row].name);
      if (!name.starts_with("c10d::")) continue;
      calls_[CollectiveKindOf(name)].push_back(row);
    }
  }
  // Takes the call of a range of `kind` that starts at `ns`. Returns the call
  // and the call's kind; kNone and `kind` if no such call started before `ns`.
  std::pair<RowId, CollectiveKind> TakeBefore(CollectiveKind kind, int64_t ns) {
    // gloo runs a reduce-scatter as an all-reduce, of whose result each rank
    // keeps its part.
    const CollectiveKind other = kind == CollectiveKind::kAllReduce
                                     ? CollectiveKind::kReduceScatter
                                     : kind;
    const CollectiveKind first = FrontOf(other) < FrontOf(kind) ? other : kind;
    if (FrontOf(first) > ns) return {kNone, kind};
    const RowId call = calls_[first].front();
    calls_[first].pop_front();
    return {call, first};
  }

 private:
  // When the first call of that kind began.
  int64_t FrontOf(CollectiveKind kind) {
    const std::deque<RowId>& calls = calls_[kind];
    return calls.empty() ? INT64_MAX : trace_.ops()[calls.front()].begin_ns;
  }

  const Trace& trace_;
  std::map<CollectiveKind, std::deque<RowId>> calls_;
};

// Sets exposed_ns to the time that the training thread waits during a
// collective. If several run at once, the wait counts only for the one that
// started first.
void ExposeToHost(const std::vector<Segment>& host,
                  std::vector<Collective>& found) {
  std::vector<Span> waits;
  for (const Segment& segment : host) {
    if (segment.cause != Cause::kCommunication) continue;
    waits.push_back({segment.begin_ns, segment.end_ns});
  }
  waits = Merge(std::move(waits));
  int64_t owned = INT64_MIN;
  for (Collective& one : found) {
    const Span rest = {std::max(one.moved.begin_ns, owned), one.moved.end_ns};
    if (rest.length() > 0) one.exposed_ns = LengthIn(waits, rest);
    owned = std::max(owned, one.moved.end_ns);
  }
}

// Returns one collective per collective range of a CPU-only run. DDP's ranges
// around whole passes are not collectives.
std::vector<Collective> FromRanges(const Trace& trace,
                                   const std::vector<Segment>& host,
                                   const CollectiveCalls& calls) {
  CallQueue queue(trace);
  std::vector<Collective> found;
  std::unordered_map<RowId, size_t> of_op;
  std::map<std::pair<RowId, int64_t>, size_t> of_range;
  for (const Range& range : trace.ranges()) {
    const std::string_view name = trace.name(range.name);
    if (range.kind != RangeKind::kCollective ||
        name.find("DataParallel") != std::string_view::npos ||
        name.starts_with("torch.distributed.ddp.")) {
      continue;
    }
    Collective one;
    const auto [call, kind] =
        queue.TakeBefore(CollectiveKindOf(name), range.begin_ns);
    one.kind = kind;
    one.moved = {range.begin_ns, range.end_ns};
    calls.Describe(call, one);
    if (one.op != kNone) of_op[one.op] = found.size();
    of_range[{range.thread, range.begin_ns}] = found.size();
    one.step =
        calls.StepAt(one.op == kNone ? range.begin_ns : one.issued.begin_ns);
    found.push_back(one);
  }
  for (RowId index = 0; index < trace.communications().size(); ++index) {
    const Communication& row = trace.communications()[index];
    const auto apply = [&](Collective& one) {
      one.communication = index;
      calls.ApplyMetadata(row, one);
    };
    const auto range = of_range.find({row.thread, row.begin_ns});
    if (range != of_range.end()) apply(found[range->second]);
    for (RowId op = row.op; op != kNone; op = trace.ops()[op].parent) {
      const auto known = of_op.find(op);
      if (known == of_op.end()) continue;
      apply(found[known->second]);
      break;
    }
  }
  for (Collective& one : found) calls.MarkGradient(one);
  ExposeToHost(host, found);
  return found;
}

}  // namespace

std::vector<Collective> FindCollectives(const Trace& trace, const OpTree& tree,
                                        const Steps& steps,
                                        const std::vector<Segment>& host) {
  const CollectiveCalls calls(trace, tree, steps);
  std::vector<Collective> found = trace.kernels().empty()
                                      ? FromRanges(trace, host, calls)
                                      : FromKernels(trace, calls);
  std::ranges::stable_sort(
      found, {}, [](const Collective& one) { return one.moved.begin_ns; });
  return found;
}

CollectiveTotals TotalsOf(
    const std::vector<Collective>& collectives, const Steps& steps,
    const std::function<bool(const Collective&)>& wanted) {
  CollectiveTotals totals;
  std::vector<bool> steady(steps.windows.size());
  for (size_t i : steps.steady) steady[i] = true;
  // Collectives on several streams may overlap. Their union is the time in
  // which at least one of them moves data.
  std::vector<Span> moved;
  for (const Collective& one : collectives) {
    if (one.step == kNoStep || !steady[one.step] || !wanted(one)) continue;
    ++totals.count;
    moved.push_back(one.moved);
    totals.exposed_ns += one.exposed_ns;
    totals.issue_ns += one.issued.length();
    if (one.bytes < 0) totals.all_sizes_known = false;
    if (one.bytes > 0) totals.bytes += one.bytes;
  }
  totals.moved_ns = Length(Merge(std::move(moved)));
  const double steps_count = std::max<size_t>(steps.steady.size(), 1);
  for (double* sum : {&totals.count, &totals.bytes, &totals.moved_ns,
                      &totals.exposed_ns, &totals.issue_ns}) {
    *sum /= steps_count;
  }
  return totals;
}

}  // namespace stepscope
