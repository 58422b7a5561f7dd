#include "evidence/gradients/unread_gradients.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "evidence/collective_evidence.h"
#include "evidence/gradients/backward_passes.h"
#include "evidence/gradients/cleared_gradients.h"
#include "evidence/gradients/dead_ends.h"
#include "evidence/gradients/parameter_updates.h"
#include "evidence/program/op_shapes.h"
#include "ops/backward_nodes.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// With fewer steps that update, another optimizer may only not have had its
// turn.
constexpr size_t kLeastUpdates = 3;

// Sizes of which every gradient in the recording is added to an earlier one,
// although optimizers step: whoever updates parameters sets their gradients to
// None or zero.
std::set<Dims> NeverCleared(const std::vector<BackwardPass>& passes,
                            const ParameterUpdates& updates) {
  std::set<Dims> sizes, cleared = updates.zeroed;
  if (updates.unknown_zeroed) return sizes;
  for (const BackwardPass& pass : passes) {
    for (const PassNode& node : pass.nodes) {
      for (const StoredGradient& one : node.kept) {
        (one.adds ? sizes : cleared).insert(one.gradient.dims);
      }
    }
  }
  std::erase_if(sizes,
                [&](const Dims& dims) { return cleared.contains(dims); });
  return sizes;
}

// The same of single gradients, where others of their size are cleared: by
// size, which of them, in the order of each pass. None of sizes of which passes
// keep different numbers.
using Positions = std::map<Dims, std::set<size_t>>;

Positions NeverClearedAt(std::vector<BackwardPass>& passes,
                         const ParameterUpdates& updates) {
  Positions found;
  if (updates.unknown_zeroed) return found;
  std::map<Dims, std::vector<bool>> adds;  // in all passes so far
  std::set<Dims> unclear = updates.zeroed;
  for (BackwardPass& pass : passes) {
    for (const auto& [dims, kept] : GroupedBySize(pass)) {
      std::vector<bool>& all =
          adds.try_emplace(dims, kept.size(), true).first->second;
      if (all.size() != kept.size()) {
        unclear.insert(dims);
        continue;
      }
      for (size_t i = 0; i < kept.size(); ++i) {
        all[i] = all[i] && kept[i]->adds;
      }
    }
  }
  for (const auto& [dims, all] : adds) {
    const auto others = std::ranges::count(all, false);
    // The optimizer updates no more than the others.
    if (dims.empty() || others == 0 || unclear.contains(dims) ||
        CountOfSize(updates.stepped, dims) > static_cast<double>(others)) {
      continue;
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i]) found[dims].insert(i);
    }
  }
  return found;
}

// Marks the gradients of the pass that are unread; returns whether others are
// read.
bool MarkUnread(const ParameterUpdates& updates,
                const std::set<Dims>& never_cleared,
                const Positions& never_cleared_at, BackwardPass& pass) {
  bool any_read = false;
  for (const auto& [dims, kept] : GroupedBySize(pass)) {
    const double updated = CountOfSize(updates.tensors, dims);
    // Sizes say nothing about scalars, as steps of optimizers are.
    if (!dims.empty() && updated == 0 && !updates.taken.contains(dims) &&
        (updates.all_known || never_cleared.contains(dims))) {
      for (StoredGradient* one : kept) one->unread = true;
      continue;
    }
    any_read = true;
    const auto adding = std::ranges::count_if(kept, &StoredGradient::adds);
    if (updates.all_known && updated > 0 &&
        static_cast<double>(kept.size()) - updated ==
            static_cast<double>(adding)) {
      for (StoredGradient* one : kept) one->unread |= one->adds;
    }
    const auto at = never_cleared_at.find(dims);
    if (at == never_cleared_at.end()) continue;
    for (size_t i : at->second) kept[i]->unread = true;
  }
  return any_read;
}

// A head on a frozen network: the gradients that the pass makes first are of
// the very sizes that the optimizer updates, some behind them are unread, and
// so are the rest. Sizes alone do not tell a bias of the head from one of the
// network; one that the head alone has shows where it is.
void MarkBehindHead(const ParameterUpdates& updates, BackwardPass& pass) {
  if (!updates.all_known || updates.in_backward) return;
  std::map<Dims, double> left = updates.stepped;
  left.erase(Dims());
  double missing = 0;
  for (const auto& [dims, count] : left) missing += count;
  const bool is_placed =
      std::ranges::any_of(GroupedBySize(pass), [&](const auto& size) {
        const double updated = CountOfSize(left, size.first);
        return updated > 0 &&
               updated >= static_cast<double>(size.second.size());
      });
  if (!is_placed) return;
  std::vector<StoredGradient*> behind;
  for (PassNode& node : pass.nodes) {
    for (StoredGradient& one : node.kept) {
      if (missing == 0) {
        behind.push_back(&one);
        continue;
      }
      double& count = left[one.gradient.dims];
      if (count <= 0) return;
      --count;
      --missing;
    }
  }
  if (std::ranges::none_of(behind, &StoredGradient::unread)) return;
  for (StoredGradient* one : behind) {
    const Dims& dims = one->gradient.dims;
    one->unread |= !dims.empty() && !updates.only_read.contains(dims);
  }
}

// The ops in [first, last] of the node's thread that make the gradient of a
// weight or bias of the size `dims`.
void AddWeightOps(const AnalysisContext& m, const PassNode* before,
                  const PassNode& node, const Dims& dims,
                  std::vector<ShortenedOp>& ops) {
  const Op& last = m.trace.ops()[node.row];
  const Op& first = m.trace.ops()[before != nullptr ? before->row : node.row];
  for (RowId row :
       m.tree.of_thread(last.thread, {first.begin_ns, last.end_ns})) {
    const Op& op = m.trace.ops()[row];
    const std::string_view name = m.trace.name(op.name);
    if (name == "aten::convolution_backward" && dims.size() > 2) {
      // As many operations each for the input and for the weight.
      const bool only_weight = MakesGradient(m.trace, row, 0) == false;
      ops.push_back({row, only_weight ? 0 : 0.5});
      return;
    }
    if (m.tree.traits(row).matmul && m.tree.computes(row) && dims.size() == 2) {
      const MatmulShape shape = CostOf(m.trace, row).matmul;
      if ((shape.m == dims[0] && shape.n == dims[1]) ||
          (shape.n == dims[0] && shape.m == dims[1])) {
        ops.push_back({row, 0});
        return;
      }
    }
    if (name == "aten::sum" && dims.size() == 1 &&
        op.parent == OutermostOf(m.trace, row)) {
      const TensorShape summed = TensorArgument(m.trace, row, 0);
      if (!summed.dims.empty() && summed.dims.back() == dims[0]) {
        ops.push_back({row, 0});
        return;
      }
    }
  }
}

// The op that makes the gradient with which the nodes from `tail` on begin: no
// trained parameter needs it.
void AddFeeding(const AnalysisContext& m, const BackwardPass& pass, size_t tail,
                std::vector<ShortenedOp>& ops) {
  const RowId forward = m.trace.ops()[pass.nodes[tail].row].forward;
  if (forward == kNone) return;
  const std::optional<Dims> fed = ResultDims(m.trace, forward);
  if (!fed || fed->size() < 2) return;
  for (size_t i = tail; i-- > 0;) {
    for (RowId row : m.tree.inside(pass.nodes[i].row)) {
      if (!m.tree.traits(row).matmul || !m.tree.computes(row)) continue;
      if (MakesGradient(m.trace, row, 0).value_or(false) &&
          DimsOf(m.trace, row, 1) == *fed) {
        ops.push_back({row, 0.5});
        return;
      }
      if (ResultDims(m.trace, row) == fed) {
        ops.push_back({row, 0});
        return;
      }
    }
  }
}

// What the pass would not run if the unread gradients were not wanted.
void AddNodes(const AnalysisContext& m, const BackwardPass& pass,
              UnreadGradients& found) {
  double parameters = 0, bytes = 0, beside = 0;
  const auto has = [](const PassNode& node, bool unread) {
    return std::ranges::any_of(node.kept, [&](const StoredGradient& one) {
      return one.unread == unread;
    });
  };
  size_t tail = 0;  // the first node behind the last trained parameter
  for (size_t i = 0; i < pass.nodes.size(); ++i) {
    if (has(pass.nodes[i], false)) tail = i + 1;
  }
  const bool ends_unread = std::any_of(
      pass.nodes.begin() + static_cast<std::ptrdiff_t>(tail), pass.nodes.end(),
      [&](const PassNode& node) { return has(node, true); });
  if (tail > 0 && tail < pass.nodes.size() && ends_unread) {
    AddFeeding(m, pass, tail, found.ops);
  }
  for (size_t i = 0; i < pass.nodes.size(); ++i) {
    const PassNode& node = pass.nodes[i];
    const bool whole = i >= tail && ends_unread;
    if (whole) found.ops.push_back({node.row, 0});
    for (const StoredGradient& one : node.kept) {
      if (!one.unread) continue;
      found.ops.push_back({OutermostOf(m.trace, one.row), 0});
      if (m.trace.ops()[node.row].forward != kNone) {
        found.forward = m.trace.ops()[node.row].forward;
      }
      ++parameters;
      bytes += static_cast<double>(BytesOf(m.trace, one.gradient));
      if (whole) continue;
      ++beside;
      AddWeightOps(m, i > 0 ? &pass.nodes[i - 1] : nullptr, node,
                   one.gradient.dims, found.ops);
    }
  }
  if (parameters <= found.parameters) return;
  found.parameters = parameters;
  found.bytes = bytes;
  found.beside = beside;
}

// The parts of backward that nothing trained needs, wherever they run: the
// passes of layers of which all gradients are unread.
void AddDeadEnds(const AnalysisContext& m,
                 const std::vector<BackwardPass>& passes,
                 UnreadGradients& found) {
  std::set<Dims> untrained, trained;
  std::set<RowId> read;
  for (const BackwardPass& pass : passes) {
    for (const PassNode& node : pass.nodes) {
      for (const StoredGradient& one : node.kept) {
        const bool dead = one.unread && !one.cleared;
        (dead ? untrained : trained).insert(one.gradient.dims);
        if (!dead) read.insert(node.row);
      }
    }
  }
  for (const Dims& dims : trained) untrained.erase(dims);
  if (untrained.empty()) return;
  for (RowId node : FindDeadEnds(m, untrained, read)) {
    found.ops.push_back({node, 0});
    found.dead_ends = true;
  }
}

UnreadGradients Unknown(std::string why) {
  UnreadGradients found;
  found.unknown = std::move(why);
  return found;
}

}  // namespace

UnreadGradients FindUnreadGradients(const AnalysisContext& m) {
  UnreadGradients found;
  if (m.steps.thread == kNone || m.parts.optimizer.spans.empty()) return found;
  if (ShardsParameters(m.trace) ||
      std::ranges::any_of(m.collectives, [](const Collective& one) {
        return one.kind != CollectiveKind::kAllReduce;
      })) {
    return Unknown(
        "the ranks may share the work of the optimizer: what one of them does "
        "not update, another one may");
  }
  std::set<size_t> updating;
  for (const Span& span : m.parts.optimizer.spans) {
    updating.insert(WindowAt(m.steps, &StepWindow::host, span.begin_ns));
  }
  if (updating.size() < kLeastUpdates) return found;
  BackwardPasses all = FindBackwardPasses(m);
  if (all.passes.empty()) return found;
  if (!all.sizes_known) {
    return Unknown("the sizes of gradients were not recorded (record_shapes)");
  }
  if (all.nested || all.threads) {
    return Unknown("backward passes run inside others, or on several threads");
  }
  const ParameterUpdates updates = FindParameterUpdates(m);
  const std::set<Dims> never_cleared = NeverCleared(all.passes, updates);
  const Positions never_cleared_at = NeverClearedAt(all.passes, updates);
  if (updates.all_known && !updates.in_backward) {
    MarkCleared(m, updates, all.passes);
  }
  bool any_read = false;
  std::set<size_t> steps;
  std::map<Dims, double> sizes;
  bool all_add = true;
  for (BackwardPass& pass : all.passes) {
    if (!std::ranges::binary_search(m.steps.steady, pass.step)) continue;
    any_read |= MarkUnread(updates, never_cleared, never_cleared_at, pass);
    MarkBehindHead(updates, pass);
    AddNodes(m, pass, found);
    for (const PassNode& node : pass.nodes) {
      for (const StoredGradient& one : node.kept) {
        if (!one.unread) continue;
        steps.insert(pass.step);
        all_add &= one.adds;
        (one.cleared ? found.cleared : found.untrained) = true;
        sizes[one.gradient.dims] =
            static_cast<double>(BytesOf(m.trace, one.gradient));
      }
    }
  }
  // Where nothing is read, it is not known what the optimizer updates.
  if (!any_read || steps.size() < m.steps.steady.size()) return {};
  AddDeadEnds(m, all.passes, found);
  found.never_zeroed = all_add && !found.cleared;
  for (const auto& [dims, bytes] : sizes) found.sizes.push_back(dims);
  std::ranges::stable_sort(found.sizes, std::greater(),
                           [&](const Dims& dims) { return sizes[dims]; });
  return found;
}

}  // namespace stepscope
