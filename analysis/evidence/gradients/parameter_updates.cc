#include "evidence/gradients/parameter_updates.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <optional>
#include <utility>

#include "ops/backward_nodes.h"
#include "ops/update_span.h"
#include "steps/optimizer_spans.h"
#include "steps/steady_steps.h"

namespace stepscope {

double CountOfSize(const std::map<Dims, double>& counts, const Dims& dims) {
  const auto found = counts.find(dims);
  return found == counts.end() ? 0 : found->second;
}

const std::map<Dims, double>& SizeCounts::Of(RowId inputs) {
  std::optional<std::map<Dims, double>>& known = known_[inputs];
  if (known) return *known;
  std::map<Dims, double>& most = known.emplace();
  for (const Argument& argument : trace_.op_inputs()[inputs].arguments) {
    std::map<Dims, double> counts;
    if (argument.elements.empty()) {
      if (!argument.dims.empty()) ++counts[argument.dims];
    }
    for (const Argument& one : argument.elements) ++counts[one.dims];
    for (const auto& [dims, count] : counts) {
      most[dims] = std::max(most[dims], count);
    }
  }
  return most;
}

bool IsListUpdate(std::string_view name) {
  return name.starts_with("aten::_foreach_") ||
         name.starts_with("aten::_fused_");
}

bool MayUpdateParameter(const AnalysisContext& m, RowId row) {
  const Op& op = m.trace.ops()[row];
  const OpTraits& traits = m.tree.traits(row);
  if (op.inputs == kNone || !traits.update || traits.zeroing) return false;
  const std::string_view name = m.trace.name(op.name);
  if (m.tree.in_backward(row)) {
    // In backward, only hooks of AccumulateGrad update parameters. The copy and
    // the addition in the node itself only store the gradient.
    const RowId node = OutermostOf(m.trace, row);
    return m.trace.name(m.trace.ops()[node].name).ends_with("AccumulateGrad") &&
           name != "aten::copy_" && !AddsToGradient(m.trace, row);
  }
  // An in-place op counts if the program calls it directly or in an optimizer's
  // step. Elsewhere, in-place ops inside other ops are part of their
  // computation.
  return IsListUpdate(name) || (name.ends_with("_") && op.parent == kNone) ||
         LengthIn(m.parts.optimizer.spans, {op.begin_ns, op.end_ns}) > 0;
}

namespace {

// True if each optimizer step contains an op that shows what it updates.
// Optimizers with their own kernels, and compiled ones, show none.
bool AllShowUpdates(const std::vector<Span>& steps,
                    const std::vector<int64_t>& times) {
  return std::ranges::all_of(steps, [&](const Span& step) {
    const auto next = std::ranges::lower_bound(times, step.begin_ns);
    return next != times.end() && *next < step.end_ns;
  });
}

// True if an op around `row` may update parameters. A fused update of
// channels-last weights copies their gradients inside, for example.
bool IsInsideUpdate(const AnalysisContext& m, RowId row) {
  while ((row = m.trace.ops()[row].parent) != kNone) {
    if (MayUpdateParameter(m, row)) return true;
  }
  return false;
}

// Tells the updates of two optimizers apart: by class, and by whether they
// update lists in one op, lists in several ops, or single tensors.
struct OptimizerKind {
  NameId range = 0;  // "Optimizer.step#SGD.step"; 0: outside such a range
  NameId fused = 0;  // the fused op; 0: none
  bool lists = false;
  // clang-tidy 14 takes the 0 that operator<=> compares with for a pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  auto operator<=>(const OptimizerKind&) const = default;
};

OptimizerKind KindOf(const Trace& trace, RowId row,
                     const std::map<int64_t, const Range*>& steps) {
  const Op& op = trace.ops()[row];
  OptimizerKind kind;
  const auto after = steps.upper_bound(op.begin_ns);
  if (after != steps.begin() &&
      op.begin_ns < std::prev(after)->second->end_ns) {
    kind.range = std::prev(after)->second->name;
  }
  const std::string_view name = trace.name(op.name);
  if (name.starts_with("aten::_fused_")) kind.fused = op.name;
  kind.lists = IsListUpdate(name);
  return kind;
}

}  // namespace

ParameterUpdates FindParameterUpdates(const AnalysisContext& m) {
  const Trace& trace = m.trace;
  ParameterUpdates found;
  std::map<int64_t, const Range*> optimizer_steps;
  for (const Range& range : trace.ranges()) {
    if (range.kind != RangeKind::kOptimizer) continue;
    const Span span = UpdateSpanOf(trace, range);
    optimizer_steps[span.begin_ns] = &range;
    if (IsOptimizerStep(trace, range)) found.steps.push_back(span);
  }
  const std::vector<Span> optimizing = Merge(found.steps);
  // The most calls of an op with the same sizes in one step. Optimizers that
  // take turns have different lists, whose sizes add up.
  using OpOf = std::pair<OptimizerKind, NameId>;
  using Key = std::pair<OpOf, std::map<Dims, double>>;
  SizeCounts sizes_of(trace);
  std::map<Key, double> most;
  std::map<std::pair<OpOf, RowId>, double> now;  // by row of inputs
  size_t current = m.steps.windows.size();
  bool after_backward = false;
  const auto close = [&] {
    std::map<Key, double> step;
    for (const auto& [call, times] : now) {
      step[{call.first, sizes_of.Of(call.second)}] += times;
    }
    for (const auto& [key, times] : step) {
      most[key] = std::max(most[key], times);
    }
    now.clear();
  };
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    const size_t step = WindowAt(m.steps, &StepWindow::host, op.begin_ns);
    if (step != current) {
      close();
      after_backward = false;
    }
    current = step;
    const bool in_backward = m.tree.in_backward(row);
    const OpTraits& traits = m.tree.traits(row);
    if (in_backward) {
      after_backward = true;
    } else if (traits.matmul && op.thread == m.steps.thread) {
      // A matrix product on the training thread starts the next forward pass.
      after_backward = false;
    }
    if (traits.zeroing && !in_backward) {
      found.unknown_zeroed |= op.inputs == kNone || TakesCutList(trace, row);
    }
    if (op.inputs == kNone) continue;
    const bool updates = MayUpdateParameter(m, row);
    if (traits.zeroing && !in_backward) {
      for (const auto& [dims, count] : sizes_of.Of(op.inputs)) {
        found.zeroed.insert(dims);
      }
    }
    if (after_backward && !in_backward && !traits.bookkeeping &&
        !traits.zeroing) {
      const bool writes = updates && trace.name(op.name).ends_with('_');
      const bool reads = !writes && !Covers(optimizing, op.begin_ns) &&
                         !IsInsideUpdate(m, row);
      for (const auto& [dims, count] : sizes_of.Of(op.inputs)) {
        found.taken.insert(dims);
        if (reads) found.only_read.insert(dims);
      }
    }
    if (!updates || IsInsideUpdate(m, row)) continue;
    found.in_backward |= in_backward;
    // PyTorch's profiler leaves out the sizes of long lists.
    if (TakesCutList(trace, row)) {
      found.all_known = false;
      continue;
    }
    ++now[{{KindOf(trace, row, optimizer_steps), op.name}, op.inputs}];
    found.times.push_back(op.begin_ns);
  }
  close();
  std::map<OpOf, std::map<Dims, double>> by_op;
  for (const auto& [key, times] : most) {
    for (const auto& [dims, count] : key.second) {
      by_op[key.first][dims] += count * times;
    }
  }
  // An optimizer may call several ops per tensor, and some of them twice, as
  // Adam multiplies both of its averages. So take the least frequent one.
  std::map<OptimizerKind, std::map<Dims, double>> by_kind;
  for (const auto& [op, sizes] : by_op) {
    // Weight decay, which adds out of place, may leave some tensors out.
    if (!trace.name(op.second).ends_with('_')) continue;
    for (const auto& [dims, count] : sizes) {
      double& tensors =
          by_kind[op.first].try_emplace(dims, count).first->second;
      tensors = std::min(tensors, count);
    }
  }
  for (const auto& [kind, sizes] : by_kind) {
    for (const auto& [dims, count] : sizes) {
      found.tensors[dims] += count;
      if (kind.range != 0) found.stepped[dims] += count;
    }
  }
  found.all_known &= AllShowUpdates(found.steps, found.times);
  if (found.stepped.empty()) {
    found.stepped = found.tensors;
    found.steps.clear();
  }
  return found;
}

}  // namespace stepscope
