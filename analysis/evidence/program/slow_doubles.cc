#include "evidence/program/slow_doubles.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <utility>

#include "ops/op_arguments.h"
#include "timeline/timeline.h"

namespace stepscope {

bool TakesDoubles(const Trace& trace, RowId op) {
  if (op == kNone || trace.ops()[op].inputs == kNone ||
      trace.name(trace.ops()[op].name) == "aten::multinomial") {
    return false;
  }
  return std::ranges::any_of(
      trace.op_inputs()[trace.ops()[op].inputs].arguments,
      [&](const Argument& argument) {
        return !argument.dims.empty() && trace.name(argument.type) == "double";
      });
}

RowId DoubleConvolutionAround(const Trace& trace, RowId op) {
  // aten::conv2d calls aten::convolution, and so on. Take the outermost op, so
  // that the operations count once.
  RowId found = kNone;
  for (; op != kNone; op = trace.ops()[op].parent) {
    const std::string_view name = trace.name(trace.ops()[op].name);
    if (ClassOfOp(name) == KernelClass::kConvolution &&
        TakesDoubles(trace, op)) {
      found = op;
    }
  }
  return found;
}

LstmLayers FindLstmLayers(const AnalysisContext& m,
                          const std::function<bool(RowId)>& counts) {
  LstmLayers found;
  std::vector<Span> nodes;
  for (const ForwardStep& step : m.forward) {
    for (RowId row : step.ops) {
      const Op& op = m.trace.ops()[row];
      if (m.trace.name(op.name) != "aten::lstm" || !counts(row)) continue;
      found.calls.push_back(row);
      found.spans.push_back({op.begin_ns, op.end_ns});
      double flops = 0;
      for (RowId in : m.tree.inside(row)) {
        if (m.tree.computes(in))
          flops += std::max(0.0, CostOf(m.trace, in).flops);
      }
      const std::vector<RowId> behind = m.backward.Of(op);
      // Backward computes two products per forward product: one gradient per
      // factor.
      found.flops += flops * (behind.empty() ? 1 : 3);
      for (RowId node : behind) {
        const Op& part = m.trace.ops()[node];
        if (part.thread != m.steps.thread) continue;
        nodes.push_back({part.begin_ns, part.end_ns});
      }
    }
  }
  // Include the engine's work between the nodes of a layer.
  for (const Span& span : MergeAcross(std::move(nodes), kFrameworkGapNs)) {
    found.spans.push_back(span);
  }
  found.spans = Merge(std::move(found.spans));
  const auto steps = static_cast<double>(m.steps.steady.size());
  for (const Span& span : found.spans) {
    found.ns += static_cast<double>(span.length()) / steps;
    found.events +=
        static_cast<double>(m.tree.of_thread(m.steps.thread, span).size()) /
        steps;
  }
  found.flops /= steps;
  return found;
}

LstmLayers FindDoubleLstms(const AnalysisContext& m) {
  return FindLstmLayers(m,
                        [&](RowId row) { return TakesDoubles(m.trace, row); });
}

}  // namespace stepscope
