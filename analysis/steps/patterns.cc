#include "steps/patterns.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace stepscope {
namespace {

// A run of ops with fewer autograd nodes than this is not a forward pass but
// single ops, such as a metric, unless it lies in a validation phase. Our own
// choice.
constexpr int64_t kNodesOfAPass = 10;

// This many steps without a backward pass or an optimizer show that a program
// does not train. A shorter recording may only have ended before them.
constexpr size_t kStepsToTell = 3;

bool HasOptimizer(const Trace& trace) {
  return std::ranges::any_of(trace.ranges(), [](const Range& range) {
    return range.kind == RangeKind::kOptimizer;
  });
}

// The most bytes that allocations made in `span` held at once; -1 if memory was
// not recorded. For a validation pass, this is the memory that its unused graph
// keeps.
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

std::vector<Span> ZeroGradRanges(const Trace& trace) {
  std::vector<Span> spans;
  for (const Range& range : trace.ranges()) {
    if (trace.name(range.name).starts_with("Optimizer.zero_grad")) {
      spans.push_back({range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(spans));
}

ZeroGrad FindZeroGrad(const Trace& trace, const OpTree& tree,
                      const Steps& steps) {
  ZeroGrad found;
  if (steps.thread == kNone) return found;
  const std::vector<Span> ranges = ZeroGradRanges(trace);
  int64_t single = 0;
  bool lists = false;
  // Zeroing and adding are matched by their number, not by tensor, because
  // addresses are rarely recorded.
  for (RowId row : tree.of_thread(steps.thread)) {
    const Op& op = trace.ops()[row];
    if (!tree.traits(row).zeroing) continue;
    const bool named = LengthIn(ranges, {op.begin_ns, op.end_ns}) > 0;
    // If the recording has ranges of zero_grad, a zero_ outside them fills some
    // other buffer of the program.
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
  // The backward pass adds to zeroed gradients. Without any such add, the
  // zeroed tensors are other buffers of the program.
  if (adds.empty() && ranges.empty()) found.zeroing.clear();
  // With several backward passes per zeroing, the adds sum their gradients and
  // must stay. 1.5 accumulations per zeroing leave room for unused parameters.
  const bool once = lists || 2 * accumulations <= 3 * single;
  if (!found.zeroing.empty() && once) found.adding = std::move(adds);
  return found;
}

// An op gets a sequence number whenever gradients are on. If no node with that
// number runs in a backward pass, its part of the graph was made in vain.
std::vector<UnusedGraph> FindUnusedGraphs(const Trace& trace,
                                          const OpTree& tree,
                                          const Steps& steps) {
  std::vector<UnusedGraph> found;
  const RowId thread = steps.thread;
  if (thread == kNone) return found;
  std::unordered_set<int64_t> visited;
  int64_t last_backward_ns = 0;
  for (const Op& op : trace.ops()) {
    if (op.kind != OpKind::kBackward) continue;
    last_backward_ns = std::max(last_backward_ns, op.begin_ns);
    // Sequence numbers are unique only within a forward thread. Thread 0 means
    // that the file does not name the thread.
    const uint64_t ours = trace.threads()[thread].torch_thread;
    if (op.sequence >= 0 &&
        (op.forward_thread == ours || op.forward_thread == 0 || ours == 0)) {
      visited.insert(op.sequence);
    }
  }
  const bool trains = last_backward_ns > 0 || HasOptimizer(trace);
  if (trains && last_backward_ns == 0) return found;
  if (!trains && steps.windows.size() < kStepsToTell) return found;

  const std::vector<Span> validation = ValidationPasses(trace, thread);

  UnusedGraph run;
  std::unordered_set<int64_t> seen;
  const auto close = [&] {
    run.marked = 2 * LengthIn(validation, run.span) > run.span.length();
    // The backward pass of the last nodes may come after the end of the
    // recording, so they are not judged. Validation and programs that only
    // infer have no backward pass, so there the nodes are judged.
    const bool judged =
        !trains || run.marked || run.span.end_ns <= last_backward_ns;
    if ((run.nodes >= kNodesOfAPass || run.marked) && run.has_matmul &&
        judged) {
      run.held_bytes = HeldBytes(trace, run.span);
      found.push_back(run);
    }
    run = UnusedGraph();
  };
  size_t next_step = 0;  // the first one that begins after the last op
  for (RowId row : tree.of_thread(thread)) {
    const Op& op = trace.ops()[row];
    // In a program that only infers, only the steps separate the passes.
    for (; !trains && next_step < steps.windows.size() &&
           steps.windows[next_step].host.begin_ns <= op.begin_ns;
         ++next_step) {
      close();
    }
    // Activation checkpointing runs the forward pass again inside a backward
    // node; those nodes are used at once.
    if (tree.in_backward(row)) {
      close();
      continue;
    }
    if (op.sequence < 0) continue;
    // An op carries the number of the next node to be made, whether or not it
    // makes one. So only the first op with a number counts as a node.
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

// Finds only marked phases. In programs without marks, FindUnusedGraphs() finds
// validation passes by their unused nodes.
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
    ++pass;  // workers make the later batches of the pass in advance
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

std::optional<bool> RecordedAnomalyMode(const Trace& trace) {
  // Programs may switch anomaly mode off for some steps, such as validation.
  constexpr double kMinFrac = 0.9;
  double known = 0, on = 0;
  for (const Settings& row : trace.settings()) {
    known += row.anomaly_mode >= 0;
    on += row.anomaly_mode == 1;
  }
  if (known == 0) return std::nullopt;
  return on >= kMinFrac * known;
}

}  // namespace stepscope
