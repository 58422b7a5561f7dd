#include "evidence/program/forward_ops.h"

#include <algorithm>
#include <utility>

#include "ops/op_arguments.h"

namespace stepscope {
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
