#include "steps/patterns.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace stepscope {
namespace {

// A stretch of fewer nodes is a stray op, not a forward pass, unless it says
// that it validates.
constexpr int64_t kNodesOfAPass = 10;

std::vector<Span> ZeroGradRanges(const Trace& trace) {
  std::vector<Span> spans;
  for (const Range& range : trace.ranges()) {
    if (trace.name(range.name).starts_with("Optimizer.zero_grad")) {
      spans.push_back({range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(spans));
}

// The most bytes that allocations made in `span` held at once.
int64_t HeldBytes(const Trace& trace, Span span) {
  if (!trace.watched(Kind::kMemory)) return -1;
  struct Change {
    int64_t time_ns, bytes;
  };
  std::vector<Change> changes;
  for (const Allocation& row : trace.allocations()) {
    if (row.bytes <= 0 || row.time_ns < span.begin_ns ||
        row.time_ns >= span.end_ns) {
      continue;
    }
    changes.push_back({row.time_ns, row.bytes});
    if (row.other != kNone) {
      changes.push_back({trace.allocations()[row.other].time_ns, -row.bytes});
    }
  }
  std::ranges::sort(changes, {}, &Change::time_ns);
  int64_t held = 0, most = 0;
  for (const Change& change : changes) {
    held += change.bytes;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace

ZeroGrad FindZeroGrad(const Trace& trace, const OpTree& tree,
                      const Steps& steps) {
  ZeroGrad found;
  if (steps.thread == kNone) return found;
  const std::vector<Span> ranges = ZeroGradRanges(trace);
  int64_t single = 0;
  bool lists = false;
  for (RowId row : tree.of_thread(steps.thread)) {
    const Op& op = trace.ops()[row];
    if (!tree.traits(row).zeroing) continue;
    const bool named = LengthIn(ranges, {op.begin_ns, op.end_ns}) > 0;
    // Where ranges say it, what they do not hold is somebody's own buffer.
    const bool outermost =
        op.parent == kNone || (named && !tree.traits(op.parent).zeroing);
    if (outermost && (named || ranges.empty())) {
      found.zeroing.push_back(row);
      if (trace.name(op.name).ends_with("_foreach_zero_")) {
        lists = true;
      } else {
        ++single;
      }
    }
  }
  std::vector<RowId> adds;
  int64_t accumulations = 0;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (tree.traits(row).accumulate_grad) ++accumulations;
    if (tree.traits(row).adding && op.parent != kNone &&
        tree.traits(op.parent).accumulate_grad) {
      adds.push_back(row);
    }
  }
  // A zero_ with no add behind it is somebody's own buffer, not a gradient.
  if (adds.empty() && ranges.empty()) found.zeroing.clear();
  // Several backward passes per zeroing: the adds are wanted.
  const bool once = lists || 2 * accumulations <= 3 * single;
  if (!found.zeroing.empty() && once) found.adding = std::move(adds);
  return found;
}

std::vector<UnusedGraph> FindUnusedGraphs(const Trace& trace,
                                          const OpTree& tree, RowId thread) {
  std::vector<UnusedGraph> found;
  if (thread == kNone) return found;
  std::unordered_set<int64_t> visited;
  int64_t last_backward_ns = 0;
  for (const Op& op : trace.ops()) {
    if (op.kind != OpKind::kBackward) continue;
    last_backward_ns = std::max(last_backward_ns, op.begin_ns);
    // Numbers count per forward thread; 0 means the file did not say.
    const uint64_t ours = trace.threads()[thread].torch_thread;
    if (op.sequence >= 0 &&
        (op.forward_thread == ours || op.forward_thread == 0 || ours == 0)) {
      visited.insert(op.sequence);
    }
  }
  if (last_backward_ns == 0) return found;

  const std::vector<Span> validation = ValidationPasses(trace, thread);

  UnusedGraph run;
  std::unordered_set<int64_t> seen;
  const auto close = [&] {
    run.marked = 2 * LengthIn(validation, run.span) > run.span.length();
    // What comes last may be visited after the recording, but for validation.
    const bool judged = run.marked || run.span.end_ns <= last_backward_ns;
    if ((run.nodes >= kNodesOfAPass || run.marked) && run.has_matmul &&
        judged) {
      run.held_bytes = HeldBytes(trace, run.span);
      found.push_back(run);
    }
    run = UnusedGraph();
  };
  for (RowId row : tree.of_thread(thread)) {
    const Op& op = trace.ops()[row];
    // What runs below a backward node is there to be differentiated: activation
    // checkpointing runs the forward pass again.
    if (tree.in_backward(row)) {
      close();
      continue;
    }
    if (op.sequence < 0) continue;
    // The number an op carries is that of the next node to be made; only a
    // number that moves on has made one.
    const bool fresh = seen.insert(op.sequence).second;
    if (fresh && visited.contains(op.sequence)) {
      close();
      continue;
    }
    if (visited.contains(op.sequence)) continue;
    if (run.first_op == kNone) {
      run.first_op = row;
      run.span = {op.begin_ns, op.end_ns};
    }
    if (fresh) ++run.nodes;
    run.span.end_ns = std::max(run.span.end_ns, op.end_ns);
    run.has_matmul |= tree.traits(row).matmul;
  }
  close();
  return found;
}

std::vector<Span> ValidationPasses(const Trace& trace, RowId thread) {
  std::vector<Span> passes;
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kPhase && range.thread == thread &&
        trace.name(range.name) == "validate") {
      passes.push_back({range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(passes));
}

std::vector<RowId> OpeningLoads(const Trace& trace, RowId thread) {
  if (thread == kNone) return {};
  const std::vector<Span> passes = ValidationPasses(trace, thread);
  if (passes.empty()) return {};
  std::vector<std::pair<int64_t, RowId>> loads;
  for (RowId row = 0; row < trace.ranges().size(); ++row) {
    const Range& range = trace.ranges()[row];
    if (range.thread == thread && range.kind == RangeKind::kLoader) {
      loads.push_back({range.begin_ns, row});
    }
  }
  std::ranges::sort(loads);
  std::vector<RowId> openings;
  size_t pass = 0;
  for (const auto& [begin_ns, row] : loads) {
    while (pass < passes.size() && passes[pass].end_ns <= begin_ns) ++pass;
    if (pass == passes.size()) break;
    if (begin_ns < passes[pass].begin_ns) continue;
    openings.push_back(row);
    ++pass;  // what follows in it is prefetched
  }
  std::ranges::sort(openings);
  return openings;
}

std::vector<RowId> FindNanChecks(const Trace& trace) {
  std::vector<RowId> checks;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    const std::string_view name = trace.name(op.name);
    if (name != "aten::isnan" && name != "aten::_is_any_true" &&
        name != "aten::any" && name != "aten::item" &&
        name != "aten::is_nonzero") {
      continue;
    }
    if (op.parent != kNone &&
        trace.ops()[op.parent].kind == OpKind::kBackward) {
      checks.push_back(row);
    }
  }
  return checks;
}

std::optional<bool> AnomalyModeTold(const Trace& trace) {
  constexpr double kMostSteps = 0.9;
  double told = 0, on = 0;
  for (const Settings& row : trace.settings()) {
    told += row.anomaly_mode >= 0;
    on += row.anomaly_mode == 1;
  }
  if (told == 0) return std::nullopt;
  return on >= kMostSteps * told;
}

}  // namespace stepscope
