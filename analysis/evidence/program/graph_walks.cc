#include "evidence/program/graph_walks.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ops/backward_nodes.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// With create_graph=True, at least this share of the ops in nodes record nodes
// themselves. It is below 1, because functions that cannot be differentiated
// twice record nothing. Without create_graph, recomputation in a checkpoint
// also records nodes, but that is only a third of all ops.
constexpr double kRecordingShare = 0.9;

class WalkFinder {
 public:
  explicit WalkFinder(const AnalysisContext& context)
      : m_(context), open_(context.trace.threads().size(), -1) {}

  std::vector<GraphWalk> Find() {
    for (RowId row = 0; row < m_.trace.ops().size(); ++row) Add(row);
    for (size_t i = 0; i < passes_.size(); ++i) {
      const Recording& one = recordings_[i];
      passes_[i].records =
          one.ops > 0 && one.recording >= kRecordingShare * one.ops;
    }
    std::erase_if(passes_, [&](const GraphWalk& pass) {
      return pass.step == m_.steps.windows.size();
    });
    return std::move(passes_);
  }

 private:
  // ops: directly inside nodes. recording: those of them with sequence numbers.
  struct Recording {
    double ops = 0, recording = 0;
  };

  // A new pass begins where the sequence number does not fall: of the nodes
  // that are ready, the engine runs the one with the highest number.
  // AccumulateGrad runs right after the node that computes the gradient.
  void Add(RowId row) {
    const Op& op = m_.trace.ops()[row];
    if (op.thread == kNone) return;
    if (m_.tree.traits(row).accumulate_grad) return AddKept(row);
    if (op.kind == OpKind::kOperator) return AddOp(row);
    if (op.parent != kNone || op.sequence < 0 || !IsOurs(op)) return;
    const size_t step = SteadyStepAt(m_.steps, op.begin_ns);
    int64_t& open = open_[op.thread];
    if (open < 0 || passes_[open].step != step ||
        // An equal number is the same node, and only another pass can run it
        // again.
        op.sequence >= passes_[open].nodes.back().sequence) {
      open = static_cast<int64_t>(passes_.size());
      passes_.push_back({.step = step, .span = {op.begin_ns, op.end_ns}});
      recordings_.emplace_back();
    }
    passes_[open].span.end_ns = op.end_ns;
    passes_[open].nodes.push_back({.row = row, .sequence = op.sequence});
  }

  // Autograd numbers its nodes per thread, so nodes of graphs that other
  // threads made cannot be compared with these.
  bool IsOurs(const Op& op) const {
    if (m_.steps.thread == kNone) return true;
    const uint64_t ours = m_.trace.threads()[m_.steps.thread].torch_thread;
    return op.forward_thread == 0 || ours == 0 || op.forward_thread == ours;
  }

  void AddOp(RowId row) {
    const Op& op = m_.trace.ops()[row];
    if (op.parent == kNone || open_[op.thread] < 0) return;
    WalkedNode& node = passes_[open_[op.thread]].nodes.back();
    if (!node.kept.empty() && AddsToGradient(m_.trace, row)) {
      node.kept.back().adds = true;
    }
    const Op& parent = m_.trace.ops()[op.parent];
    if (parent.kind != OpKind::kBackward || parent.sequence < 0) return;
    // node.row is the engine's range. Directly inside it the engine adds
    // gradients, while the formula of the node runs one level deeper.
    if (op.parent == node.row && m_.tree.traits(row).adding) {
      node.added.push_back(row);
      return;
    }
    Recording& pass = recordings_[open_[op.thread]];
    ++pass.ops;
    pass.recording += op.sequence >= 0;
  }

  void AddKept(RowId row) {
    const Op& op = m_.trace.ops()[row];
    if (open_[op.thread] < 0) return;
    const TensorShape gradient = TensorArgument(m_.trace, row, 0);
    passes_[open_[op.thread]].nodes.back().kept.push_back(
        {.row = OutermostOf(m_.trace, row),
         .gradient = gradient.dims,
         .sized = gradient.known()});
  }

  const AnalysisContext& m_;
  std::vector<int64_t> open_;  // by thread: index into passes_; -1: none
  std::vector<GraphWalk> passes_;
  std::vector<Recording> recordings_;  // by pass
};

}  // namespace

std::vector<GraphWalk> FindGraphWalks(const AnalysisContext& context) {
  if (context.steps.thread == kNone) return {};
  return WalkFinder(context).Find();
}

std::map<Dims, size_t> ParametersBySize(std::span<const GraphWalk> passes) {
  std::map<Dims, size_t> parameters;
  for (const GraphWalk& pass : passes) {
    std::map<Dims, size_t> counts;
    for (const WalkedNode& node : pass.nodes) {
      for (const KeptGradient& one : node.kept) ++counts[one.gradient];
    }
    for (const auto& [sizes, count] : counts) {
      parameters[sizes] = std::max(parameters[sizes], count);
    }
  }
  return parameters;
}

int64_t EndOfEngine(const AnalysisContext& context, RowId thread,
                    int64_t end_ns) {
  const std::span<const Op> ops = context.trace.ops();
  const std::span<const RowId> rows = context.tree.of_thread(thread);
  const auto next = std::ranges::lower_bound(
      rows, end_ns, {}, [&](RowId row) { return ops[row].begin_ns; });
  return next == rows.end() || !context.tree.in_backward(*next)
             ? end_ns
             : ops[*next].begin_ns;
}

ForwardOps::ForwardOps(const AnalysisContext& context) : m_(context) {
  for (RowId row : m_.tree.of_thread(m_.steps.thread)) {
    if (m_.trace.ops()[row].parent == kNone && !m_.tree.in_backward(row)) {
      ops.push_back(row);
    }
  }
}

Span ForwardOps::SpanOf(RowId row) const {
  return {m_.trace.ops()[row].begin_ns, m_.trace.ops()[row].end_ns};
}

Span ForwardOps::WithEngine(RowId node) const {
  const Op& op = m_.trace.ops()[node];
  return {op.begin_ns, EndOfEngine(m_, op.thread, op.end_ns)};
}

std::vector<RowId> ForwardOps::NodesOf(RowId row) const {
  return m_.backward.Of(m_.trace.ops()[row].thread, SpanOf(row));
}

size_t ForwardOps::IndexOf(RowId row) const {
  const Span span = SpanOf(row);
  const auto after = std::ranges::upper_bound(
      ops, span.begin_ns, {},
      [&](RowId one) { return m_.trace.ops()[one].begin_ns; });
  if (after == ops.begin() || m_.trace.ops()[row].thread != m_.steps.thread ||
      SpanOf(*(after - 1)).end_ns < span.end_ns) {
    return ops.size();
  }
  return static_cast<size_t>(after - ops.begin()) - 1;
}

Span ForwardOps::WithCall(size_t index) const {
  Span span = SpanOf(ops[index]);
  int64_t next_ns = span.end_ns + kOpCallNs;
  if (index + 1 < ops.size()) {
    next_ns = std::min(next_ns, SpanOf(ops[index + 1]).begin_ns);
  }
  span.end_ns = std::max(span.end_ns, next_ns);
  return span;
}

double ForwardOps::NsOf(std::vector<Span> spans) const {
  spans = Merge(std::move(spans));
  double device_ns = 0;
  for (const KernelUse& use : m_.kernels.uses) {
    const RowId op = m_.trace.kernels()[use.kernel].op;
    if (op != kNone && Covers(spans, m_.trace.ops()[op].begin_ns)) {
      device_ns += use.ns;
    }
  }
  return std::max(static_cast<double>(Length(spans)), device_ns);
}

}  // namespace stepscope
