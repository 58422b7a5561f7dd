#include "timeline/time_split.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "ops/update_span.h"

namespace stepscope {
namespace {

// In order of precedence: where two phases overlap, the time counts for the one
// listed first.
constexpr auto kPhases = std::to_array<std::string_view>(
    {"data", "validate", "optimizer", "backward", "forward"});
using PhaseSpans = std::array<std::vector<Span>, kPhases.size()>;

size_t PhaseIndex(std::string_view name) {
  return static_cast<size_t>(std::ranges::find(kPhases, name) -
                             kPhases.begin());
}

bool AnyPhaseRange(const Trace& trace) {
  return std::ranges::any_of(trace.ranges(), [](const Range& range) {
    return range.kind == RangeKind::kPhase;
  });
}

// Phases as the program marked them. Loader ranges count as data as well,
// because a loop that marks phases may not mark the wait for a batch.
PhaseSpans Marked(const Trace& trace, RowId thread) {
  PhaseSpans spans;
  for (const Range& range : trace.ranges()) {
    if (range.thread != thread) continue;
    size_t phase = kPhases.size();
    if (range.kind == RangeKind::kPhase) {
      phase = PhaseIndex(trace.name(range.name));
    } else if (range.kind == RangeKind::kLoader) {
      phase = 0;
    }
    if (phase < kPhases.size()) {
      spans[phase].push_back({range.begin_ns, range.end_ns});
    }
  }
  return spans;
}

// Infers phases without phase ranges. Ops before the first autograd node of a
// step are the forward pass. Ops after its last node belong to the optimizer
// (gradient clipping, for example). Short pauses between ops of the forward
// pass belong to it. If a range marks Optimizer.step, this holds only until the
// range ends; of the later ops, only the update of the loss scale
// (aten::_amp_...) belongs to the optimizer.
PhaseSpans Inferred(const Trace& trace, const OpTree& tree,
                    const Steps& steps) {
  PhaseSpans spans;
  auto& [data, validate, optimizer, backward, forward] = spans;
  std::vector<Span> updates;
  for (const Range& range : trace.ranges()) {
    if (range.thread != steps.thread) continue;
    if (range.kind == RangeKind::kLoader) {
      data.push_back({range.begin_ns, range.end_ns});
    }
    if (range.kind != RangeKind::kOptimizer) continue;
    const Span span = UpdateSpanOf(trace, range);
    optimizer.push_back(span);
    if (IsOptimizerStep(trace, range)) updates.push_back(span);
  }
  for (const Op& op : trace.ops()) {
    if (op.kind == OpKind::kBackward && op.parent == kNone) {
      backward.push_back({op.begin_ns, op.end_ns});
    }
  }
  // Without products and backward passes, no model runs.
  const auto rows = tree.of_thread(steps.thread);
  if (backward.empty() && std::ranges::none_of(rows, [&](RowId row) {
        return tree.traits(row).matmul;
      })) {
    return spans;
  }
  std::vector<Span> merged = Merge(backward);
  updates = Merge(std::move(updates));
  for (const StepWindow& step : steps.windows) {
    const std::vector<Span> inside = Clip(merged, step.host);
    const int64_t first =
        inside.empty() ? step.host.end_ns : inside.front().begin_ns;
    const int64_t last =
        inside.empty() ? step.host.end_ns : inside.back().end_ns;
    const std::vector<Span> behind = Clip(updates, {last, step.host.end_ns});
    const int64_t updated =
        behind.empty() ? step.host.end_ns : behind.back().end_ns;
    // The engine's own code between two nodes is part of the backward pass.
    if (!inside.empty()) backward.push_back({first, last});
    std::vector<Span> ops;  // of the forward pass
    for (RowId row : tree.of_thread(steps.thread, step.host)) {
      const Op& op = trace.ops()[row];
      if (op.parent != kNone) continue;
      if (op.begin_ns < first) {
        ops.push_back({op.begin_ns, op.end_ns});
      } else if (op.begin_ns >= last &&
                 (op.begin_ns < updated ||
                  trace.name(op.name).starts_with("aten::_amp_"))) {
        optimizer.push_back({op.begin_ns, op.end_ns});
      }
    }
    // The framework's code between two ops is part of the pass.
    ops = MergeAcross(std::move(ops), kFrameworkGapNs);
    forward.insert(forward.end(), ops.begin(), ops.end());
  }
  return spans;
}

// Merges each phase, and takes from it what earlier phases have.
template <typename Spans>
Spans Disjoint(Spans spans) {
  std::vector<Span> taken;
  for (std::vector<Span>& phase : spans) {
    phase = Subtract(Merge(std::move(phase)), taken);
    taken.insert(taken.end(), phase.begin(), phase.end());
    taken = Merge(std::move(taken));
  }
  return spans;
}

// The busy time of the devices by the phase that launched the work, which the
// host may have left long before; last, work that no phase launched.
using DeviceSpans = std::array<std::vector<Span>, kPhases.size() + 1>;

DeviceSpans OnDevice(const Trace& trace, const PhaseSpans& host) {
  DeviceSpans spans;
  const auto add = [&](const auto& activities) {
    for (const auto& activity : activities) {
      size_t phase = kPhases.size();
      if (activity.call != kNone) {
        const int64_t launched_ns =
            trace.runtime_calls()[activity.call].begin_ns;
        phase = static_cast<size_t>(
            std::ranges::find_if(host,
                                 [&](const std::vector<Span>& own) {
                                   return Covers(own, launched_ns);
                                 }) -
            host.begin());
      }
      spans[phase].push_back({activity.begin_ns, activity.end_ns});
    }
  };
  add(trace.kernels());
  add(trace.copies());
  add(trace.memsets());
  return Disjoint(std::move(spans));
}

// Moves the cost of recording, `ns`, from the causes in `from` to the profiler.
// Takes all it can from one cause before it goes on to the next.
void MoveToProfiler(double ns, std::initializer_list<Cause> from,
                    CauseTimes& split) {
  int64_t cost = std::llround(ns);
  for (Cause cause : from) {
    const int64_t moved = std::clamp<int64_t>(cost, 0, split[cause]);
    split[cause] -= moved;
    split[Cause::kProfiler] += moved;
    cost -= moved;
  }
}

}  // namespace

// A recording does not show single callbacks. Their time lies inside ops and
// between them, mostly inside. So the cost is taken from the framework's time
// first, and from the code between ops only if that is not enough.
void MoveToProfiler(double ns, CauseTimes& split) {
  MoveToProfiler(ns, {Cause::kDispatch, Cause::kHostCode}, split);
}

CauseTimes SplitOnHost(const Trace& trace, RowId thread,
                       const std::vector<Segment>& timeline,
                       const RecorderCost& cost) {
  CauseTimes split;
  double ops = 0, loading = 0;  // ops
  double frames = 0;            // of the loading
  for (const Segment& segment : timeline) {
    split[segment.cause] += segment.length();
    // Counts each op once, by its first segment. For ops inside a loader range,
    // the cost of recording them is part of the data time.
    if (segment.op != kNone &&
        trace.ops()[segment.op].begin_ns == segment.begin_ns) {
      ++(segment.cause == Cause::kData ? loading : ops);
    }
    if (cost.frame_ns > 0 && segment.cause == Cause::kData) {
      frames += FramesIn(trace, thread, {segment.begin_ns, segment.end_ns});
    }
  }
  MoveToProfiler(loading * cost.op_ns + frames * cost.frame_ns, {Cause::kData},
                 split);
  double ns = ops * cost.op_ns;
  if (cost.frame_ns > 0 && !timeline.empty()) {
    const double all = FramesIn(
        trace, thread, {timeline.front().begin_ns, timeline.back().end_ns});
    ns += cost.frame_ns * (all - frames);
  }
  MoveToProfiler(ns, split);
  return split;
}

std::map<std::string, double> SplitByPhase(const Trace& trace,
                                           const OpTree& tree,
                                           const Steps& steps) {
  std::map<std::string, double> result;
  if (steps.steady.empty() || steps.thread == kNone) return result;
  const PhaseSpans host =
      Disjoint(AnyPhaseRange(trace) ? Marked(trace, steps.thread)
                                    : Inferred(trace, tree, steps));
  DeviceSpans device = OnDevice(trace, host);
  // Busy time of the device comes first, then what the host does meanwhile.
  std::vector<Span> busy;
  for (const std::vector<Span>& spans : device) {
    busy.insert(busy.end(), spans.begin(), spans.end());
  }
  busy = Merge(std::move(busy));
  std::array<int64_t, kPhases.size() + 1> ns{};
  // Uses the tiled spans, so that phases add up to the same step as causes do.
  for (size_t i : steps.steady) ns.back() += steps.windows[i].tiled.length();
  for (size_t phase = 0; phase < kPhases.size(); ++phase) {
    const std::vector<Span> idle = Subtract(host[phase], busy);
    for (size_t i : steps.steady) {
      const Span step = steps.windows[i].tiled;
      ns[phase] += LengthIn(device[phase], step) + LengthIn(idle, step);
    }
    ns.back() -= ns[phase];
  }
  const double scale = 1e-6 / steps.steady.size();
  for (size_t phase = 0; phase < kPhases.size(); ++phase) {
    if (ns[phase] > 0) result[std::string(kPhases[phase])] = ns[phase] * scale;
  }
  if (ns.back() > 0) result["other"] = ns.back() * scale;
  return result;
}

}  // namespace stepscope
