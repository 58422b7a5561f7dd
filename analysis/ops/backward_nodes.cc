#include "ops/backward_nodes.h"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace stepscope {

BackwardNodes::BackwardNodes(const Trace& trace) {
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (op.kind != OpKind::kBackward || op.forward == kNone) continue;
    // The engine's range around a node has the same forward op. Keep only the
    // range.
    if (op.parent != kNone && trace.ops()[op.parent].forward == op.forward) {
      continue;
    }
    const Op& forward = trace.ops()[op.forward];
    nodes_.push_back({forward.thread, forward.begin_ns, row});
  }
  std::ranges::sort(nodes_, {}, [](const Node& node) {
    return std::tuple(node.thread, node.begin_ns, node.row);
  });
}

std::vector<RowId> BackwardNodes::Of(RowId thread, Span forward) const {
  std::vector<RowId> rows;
  auto it = std::ranges::lower_bound(
      nodes_, std::tuple(thread, forward.begin_ns), {},
      [](const Node& node) { return std::tuple(node.thread, node.begin_ns); });
  for (; it != nodes_.end() && it->thread == thread &&
         it->begin_ns < forward.end_ns;
       ++it) {
    rows.push_back(it->row);
  }
  return rows;
}

int64_t GradientsAmong(const Trace& trace, const OpTree& tree,
                       std::span<const RowId> nodes) {
  const std::span<const Op> ops = trace.ops();
  Span hull{INT64_MAX, 0};
  for (RowId node : nodes) {
    hull.begin_ns = std::min(hull.begin_ns, ops[node].begin_ns);
    hull.end_ns = std::max(hull.end_ns, ops[node].end_ns);
  }
  int64_t count = 0;
  // Counted by time, because an AccumulateGrad node has no forward op: the
  // engine runs it as soon as the gradient is ready, between the nodes of the
  // layers.
  auto op = std::ranges::lower_bound(ops, hull.begin_ns, {}, &Op::begin_ns);
  for (; op != ops.end() && op->begin_ns < hull.end_ns; ++op) {
    count += tree.traits(static_cast<RowId>(op - ops.begin())).accumulate_grad;
  }
  return count;
}

std::optional<bool> MakesGradient(const Trace& trace, RowId op, size_t of) {
  // The last argument of aten::convolution_backward is output_mask. It says
  // which gradients are wanted: input, weight, bias.
  constexpr size_t kMask = 10;  // "[True, False, False]"
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return {};
  const auto& arguments = trace.op_inputs()[inputs].arguments;
  if (arguments.size() <= kMask) return {};
  std::string_view mask = trace.name(arguments[kMask].concrete);
  if (!mask.starts_with('[')) return {};
  mask.remove_prefix(1);
  for (; of > 0; --of) {
    const size_t comma = mask.find(", ");
    if (comma == std::string_view::npos) return {};
    mask.remove_prefix(comma + 2);
  }
  if (mask.starts_with("True")) return true;
  return mask.starts_with("False") ? std::optional(false) : std::nullopt;
}

RowId OutermostOf(const Trace& trace, RowId op) {
  while (trace.ops()[op].parent != kNone) op = trace.ops()[op].parent;
  return op;
}

RowId EngineRangeOf(const Trace& trace, RowId node) {
  const RowId parent = trace.ops()[node].parent;
  return parent != kNone && trace.name(trace.ops()[parent].name)
                                .starts_with("autograd::engine::")
             ? parent
             : node;
}

bool HasModuleHooks(const Trace& trace) {
  return std::ranges::any_of(trace.ops(), [&](const Op& op) {
    return op.kind == OpKind::kBackward &&
           trace.name(op.name).starts_with("BackwardHookFunction");
  });
}

bool AddsToGradient(const Trace& trace, RowId row) {
  const Op& op = trace.ops()[row];
  if (op.parent == kNone || trace.name(trace.ops()[op.parent].name) !=
                                "torch::autograd::AccumulateGrad") {
    return false;
  }
  const std::string_view name = trace.name(op.name);
  if (name != "aten::add_" && name != "aten::add") return false;
  // The scale (alpha) is recorded only together with shapes. Without it, assume
  // that the addition adds a gradient.
  if (op.inputs == kNone) return true;
  const auto& arguments = trace.op_inputs()[op.inputs].arguments;
  const std::string_view alpha =
      arguments.size() > 2 ? trace.name(arguments[2].concrete) : "";
  return alpha.empty() || alpha == "1";  // else it updates the parameter
}

}  // namespace stepscope
