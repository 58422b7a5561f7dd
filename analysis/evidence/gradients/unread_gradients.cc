#include "evidence/gradients/unread_gradients.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "evidence/collectives/collective_evidence.h"
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

// With fewer updating steps, a second optimizer may simply not have had its
// turn.
constexpr size_t kLeastUpdates = 3;

// A kernel starts no later than this after its op. Our own choice: a queue of
// 1024 launches of 100 us each.
constexpr int64_t kLongestLag = 100'000'000;

// Returns the sizes whose gradients are always added to an earlier gradient,
// although optimizers step. Nobody updates such parameters: a program that
// updates parameters also sets their gradients to None or zero.
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

// The same for single gradients, where others of their size are cleared. Maps a
// size to the indices, within each pass, of the gradients that are never
// cleared. Leaves out a size if passes store different numbers of such
// gradients.
using Positions = std::map<Dims, std::set<size_t>>;

Positions NeverClearedAt(std::vector<BackwardPass>& passes,
                         const ParameterUpdates& updates) {
  Positions found;
  if (updates.unknown_zeroed) return found;
  std::map<Dims, std::vector<bool>> adds;  // true while all passes add
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
    // Skip a size if the optimizer updates more tensors than are cleared.
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

// Marks the unread gradients of the pass. Returns true if some gradients are
// read.
bool MarkUnread(const ParameterUpdates& updates,
                const std::set<Dims>& never_cleared,
                const Positions& never_cleared_at, BackwardPass& pass) {
  bool any_read = false;
  for (const auto& [dims, kept] : GroupedBySize(pass)) {
    const double updated = CountOfSize(updates.tensors, dims);
    // Scalars are left out, because optimizers also update scalars of their own
    // (step counters).
    if (!dims.empty() && updated == 0 && !updates.taken.contains(dims) &&
        (updates.all_known || never_cleared.contains(dims))) {
      for (StoredGradient* one : kept) one->unread = true;
      continue;
    }
    any_read = true;
    const auto adding = std::ranges::count_if(kept, &StoredGradient::adds);
    // The optimizers update fewer parameters than there are gradients, and the
    // difference equals the number of gradients added to earlier ones. A
    // program that updates parameters clears their gradients, so nobody updates
    // these.
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

// Handles a trained head on a frozen network. If the first gradients of the
// pass have exactly the sizes that the optimizer updates, and some gradients
// after them are unread, all gradients after them are unread. Sizes alone
// cannot tell a bias of the head from one of the network, so some size must
// belong to the head alone.
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

// Returns whether a convolution's backward op computes the gradient of its
// input; nullopt if unknown. Before PyTorch 2.1, profilers did not record which
// gradients are wanted, but each takes a kernel that multiplies.
std::optional<bool> MakesInputGradient(const AnalysisContext& m, RowId row) {
  if (const auto recorded = MakesGradient(m.trace, row, 0)) return recorded;
  int64_t products = 0;
  const Op& op = m.trace.ops()[row];
  // The uses are in the order of their kernels' starts.
  const auto& uses = m.kernels.uses;
  auto use = std::ranges::lower_bound(
      uses, op.begin_ns, {}, [&](const KernelUse& one) {
        return m.trace.kernels()[one.kernel].begin_ns;
      });
  for (; use != uses.end() && products < 2; ++use) {
    if (m.trace.kernels()[use->kernel].begin_ns > op.end_ns + kLongestLag) {
      break;
    }
    products += use->multiplies && use->op == row;
  }
  return products > 0 ? std::optional(products > 1) : std::nullopt;
}

// Adds the op that computes the gradient of a weight or bias of size `dims`. It
// runs between `before` and the end of `node`, on the node's thread.
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
      // The gradients of the input and of the weight take the same number of
      // operations.
      const bool only_weight = MakesInputGradient(m, row) == false;
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

// Adds the op that computes the gradient with which the nodes from `tail` on
// start. No trained parameter needs that gradient.
void AddFeeding(const AnalysisContext& m, const BackwardPass& pass, size_t tail,
                std::vector<ShortenedOp>& ops) {
  const RowId forward = m.trace.ops()[pass.nodes[tail].row].forward;
  if (forward == kNone) return;
  const std::optional<Dims> fed = ResultDims(m.trace, forward);
  if (!fed || fed->size() < 2) return;
  for (size_t i = tail; i-- > 0;) {
    for (RowId row : m.tree.inside(pass.nodes[i].row)) {
      if (!m.tree.traits(row).matmul || !m.tree.computes(row)) continue;
      if (MakesInputGradient(m, row).value_or(false) &&
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

// True if the layer whose gradients were stored last, by nodes[at] or before,
// computes no gradient of its input, so that no other node needs what it
// computes.
bool EndsBranch(const AnalysisContext& m, const BackwardPass& pass, size_t at) {
  for (size_t i = at + 1; i-- > 0;) {
    int64_t products = 0;
    for (RowId row : m.tree.inside(pass.nodes[i].row)) {
      if (m.trace.name(m.trace.ops()[row].name) ==
          "aten::convolution_backward") {
        return MakesInputGradient(m, row) == false;
      }
      products += m.tree.traits(row).matmul && m.tree.computes(row);
    }
    if (products > 0) return products == 1;
  }
  return false;
}

// By node: true in runs of nodes that store only gradients that are cleared,
// and end a branch of the graph. Another branch may come after them.
std::vector<bool> DeadRuns(const AnalysisContext& m, const BackwardPass& pass) {
  std::vector<bool> dead(pass.nodes.size());
  std::optional<size_t> first, last;
  const auto close = [&] {
    if (first && EndsBranch(m, pass, *last)) {
      for (size_t i = *first; i <= *last; ++i) dead[i] = true;
    }
    first.reset();
  };
  for (size_t i = 0; i < pass.nodes.size(); ++i) {
    const std::vector<StoredGradient>& kept = pass.nodes[i].kept;
    if (kept.empty()) continue;
    if (!std::ranges::all_of(kept, &StoredGradient::cleared)) {
      close();
      continue;
    }
    if (!first) first = i;
    last = i;
  }
  close();
  return dead;
}

// Adds what the pass would not run without the unread gradients.
void AddNodes(const AnalysisContext& m, const BackwardPass& pass,
              UnreadGradients& found) {
  double parameters = 0, bytes = 0, beside = 0;
  const auto has = [](const PassNode& node, bool unread) {
    return std::ranges::any_of(node.kept, [&](const StoredGradient& one) {
      return one.unread == unread;
    });
  };
  size_t tail = 0;  // first node after the last trained parameter
  for (size_t i = 0; i < pass.nodes.size(); ++i) {
    if (has(pass.nodes[i], false)) tail = i + 1;
  }
  const bool ends_unread = std::any_of(
      pass.nodes.begin() + static_cast<std::ptrdiff_t>(tail), pass.nodes.end(),
      [&](const PassNode& node) { return has(node, true); });
  if (tail > 0 && tail < pass.nodes.size() && ends_unread) {
    AddFeeding(m, pass, tail, found.ops);
  }
  const std::vector<bool> dead = DeadRuns(m, pass);
  for (size_t i = 0; i < pass.nodes.size(); ++i) {
    const PassNode& node = pass.nodes[i];
    const bool whole = (i >= tail && ends_unread) || dead[i];
    if (dead[i] && i > 0 && !dead[i - 1] && i != tail) {
      AddFeeding(m, pass, i, found.ops);
    }
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
  // The finding describes the pass with the most unread gradients.
  if (parameters <= found.parameters) return;
  found.parameters = parameters;
  found.bytes = bytes;
  found.beside = beside;
}

// Adds the parts of backward that no trained parameter needs, wherever they
// run: runs of layers whose gradients are all unread.
void AddDeadEnds(const AnalysisContext& m,
                 const std::vector<BackwardPass>& passes,
                 UnreadGradients& found) {
  StoredOf stored;
  std::set<Dims> trained;
  for (const BackwardPass& pass : passes) {
    for (const PassNode& node : pass.nodes) {
      for (const StoredGradient& one : node.kept) {
        const bool dead = one.unread && !one.cleared;
        (dead ? stored.untrained : trained).insert(one.gradient.dims);
        (dead ? stored.unread : stored.read).insert(node.row);
      }
    }
  }
  if (stored.unread.empty()) return;
  for (const Dims& dims : trained) stored.untrained.erase(dims);
  for (RowId node : FindDeadEnds(m, stored)) {
    found.ops.push_back({node, 0});
    found.dead_ends = true;
  }
}

// True if `passes` repeat from step to step: the k-th pass of each steady step
// adds to the same gradients and makes the others anew. An optimizer must step
// between two passes, so that none of them accumulates for the next. `mixed`:
// some pass does both.
bool AddToTheSame(const AnalysisContext& m,
                  const std::vector<BackwardPass>& passes, bool& mixed) {
  std::map<size_t, std::vector<std::vector<bool>>> by_step;
  int64_t last_ns = -1;
  for (const BackwardPass& pass : passes) {
    if (!std::ranges::binary_search(m.steps.steady, pass.step)) continue;
    std::vector<bool> adds;
    for (const PassNode& node : pass.nodes) {
      for (const StoredGradient& one : node.kept) adds.push_back(one.adds);
    }
    if (adds.empty()) continue;
    const int64_t begin_ns = m.trace.ops()[pass.nodes.front().row].begin_ns;
    const bool stepped =
        std::ranges::any_of(m.parts.optimizer.spans, [&](const Span& span) {
          return span.begin_ns > last_ns && span.begin_ns < begin_ns;
        });
    if (last_ns >= 0 && !stepped) return false;
    last_ns = begin_ns;
    mixed |= std::ranges::count(adds, true) > 0 &&
             std::ranges::count(adds, false) > 0;
    by_step[pass.step].push_back(std::move(adds));
  }
  return by_step.size() == m.steps.steady.size() &&
         std::ranges::all_of(by_step, [&](const auto& step) {
           return step.second == by_step.begin()->second;
         });
}

// True if a kernel that is launched in `span` may update several tensors: it is
// launched by no operator of PyTorch, as those of optimizers of other packages.
bool RunsOwnKernels(const AnalysisContext& m, const Span& span) {
  return std::ranges::any_of(m.kernels.uses, [&](const KernelUse& use) {
    const RowId call = m.trace.kernels()[use.kernel].call;
    if (call == kNone) return false;
    const int64_t launched_ns = m.trace.runtime_calls()[call].begin_ns;
    return launched_ns >= span.begin_ns && launched_ns < span.end_ns &&
           (use.op == kNone ||
            !m.trace.name(m.trace.ops()[use.op].name).starts_with("aten::"));
  });
}

// Counts the parameters that the optimizer updates in the step, which ended
// its backward pass at `from_ns`: the least number of calls of any in-place op,
// because an optimizer may call some ops several times per parameter, but each
// op at least once. Nullopt if ops between the pass and the optimizer's end may
// read more gradients than there are calls: ops of lists, or as many ops as
// `gradients`.
std::optional<size_t> CountUpdates(const AnalysisContext& m, int64_t from_ns,
                                   const Span& step, size_t gradients) {
  constexpr std::string_view kOfLists[] = {"aten::cat", "aten::stack",
                                           "aten::concat"};
  std::vector<Span> in_step;  // of all optimizers
  for (const Span& span : m.parts.optimizer.spans) {
    if (span.begin_ns < from_ns || span.begin_ns >= step.end_ns) continue;
    if (span.end_ns > step.end_ns) return std::nullopt;
    in_step.push_back(span);
  }
  if (in_step.empty()) return std::nullopt;
  std::vector<std::map<NameId, size_t>> updates(in_step.size());
  size_t calls = 0;
  for (RowId row :
       m.tree.of_thread(m.steps.thread, {from_ns, in_step.back().end_ns})) {
    const Op& op = m.trace.ops()[row];
    const std::string_view name = m.trace.name(op.name);
    if (IsListUpdate(name) || std::ranges::count(kOfLists, name) > 0) {
      return std::nullopt;
    }
    if (op.parent != kNone || m.tree.in_backward(row)) continue;
    ++calls;
    if (!name.ends_with('_') || !m.tree.traits(row).update) continue;
    for (size_t i = 0; i < in_step.size(); ++i) {
      const Span& span = in_step[i];
      updates[i][op.name] +=
          op.begin_ns >= span.begin_ns && op.begin_ns < span.end_ns;
    }
  }
  if (calls >= gradients) return std::nullopt;
  size_t count = 0;
  for (size_t i = 0; i < in_step.size(); ++i) {
    if (updates[i].empty() || RunsOwnKernels(m, in_step[i])) {
      return std::nullopt;
    }
    count += std::ranges::min_element(updates[i], {}, [](const auto& one) {
               return one.second;
             })->second;
  }
  return count;
}

// Marks gradients as unread where each step has one pass and an optimizer whose
// step runs fewer ops than the pass makes gradients. Which ones it updates is
// not known, so they are taken to be the first of the pass, those of the last
// layers. False if some step differs.
bool MarkUncounted(const AnalysisContext& m,
                   std::vector<BackwardPass>& passes) {
  std::vector<bool> marked(m.steps.windows.size());
  for (BackwardPass& pass : passes) {
    if (!std::ranges::binary_search(m.steps.steady, pass.step)) continue;
    if (marked[pass.step]) return false;
    marked[pass.step] = true;
    std::vector<StoredGradient*> gradients;
    for (PassNode& node : pass.nodes) {
      for (StoredGradient& one : node.kept) {
        if (one.adds) return false;
        gradients.push_back(&one);
      }
    }
    const std::optional<size_t> updated =
        CountUpdates(m, m.trace.ops()[pass.nodes.back().row].end_ns,
                     m.steps.windows[pass.step].host, gradients.size());
    if (!updated) return false;
    for (size_t i = *updated; i < gradients.size(); ++i) {
      gradients[i]->unread = true;
    }
  }
  return std::ranges::all_of(m.steps.steady,
                             [&](size_t i) { return marked[i]; });
}

// Without sizes, a parameter is known only by its place in a pass. If a pass
// adds to some gradients, in the same places in each step, while it makes
// others anew, an optimizer clears the others before it and not these. What
// they hold already belongs to a step that was taken, so nothing can use the
// sum.
UnreadGradients FindWithoutSizes(const AnalysisContext& m,
                                 std::vector<BackwardPass>& passes) {
  UnreadGradients found;
  bool mixed = false;
  if (!AddToTheSame(m, passes, mixed)) return found;
  if (!mixed) {
    if (!MarkUncounted(m, passes)) return found;
    for (const BackwardPass& pass : passes) {
      if (std::ranges::binary_search(m.steps.steady, pass.step)) {
        AddNodes(m, pass, found);
      }
    }
    found.untrained = found.by_count = true;
    return found;
  }
  std::set<size_t> seen;
  bool several = false;
  for (BackwardPass& pass : passes) {
    if (!std::ranges::binary_search(m.steps.steady, pass.step)) continue;
    for (PassNode& node : pass.nodes) {
      for (StoredGradient& one : node.kept) one.unread = one.adds;
    }
    several |= !seen.insert(pass.step).second;
    AddNodes(m, pass, found);
  }
  // With several passes per step, another one may train these parameters.
  (several ? found.cleared : found.untrained) = true;
  found.never_zeroed = !several;
  return found;
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
  if (updating.size() < 2) return found;
  BackwardPasses all = FindBackwardPasses(m);
  if (all.passes.empty()) return found;
  if (all.nested || all.threads) {
    return Unknown("backward passes run inside others, or on several threads");
  }
  if (!all.sizes_known) {
    if (updating.size() < kLeastUpdates) return found;
    UnreadGradients unsized = FindWithoutSizes(m, all.passes);
    return unsized.parameters > 0 ? unsized
                                  : Unknown(
                                        "the sizes of gradients were not "
                                        "recorded (record_shapes)");
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
  // If no gradient is read, it is unknown what the optimizer updates.
  if (!any_read || steps.size() < m.steps.steady.size()) return {};
  AddDeadEnds(m, all.passes, found);
  found.never_zeroed = all_add && !found.cleared;
  found.few_updates = updating.size() < kLeastUpdates;
  for (const auto& [dims, bytes] : sizes) found.sizes.push_back(dims);
  std::ranges::stable_sort(found.sizes, std::greater(),
                           [&](const Dims& dims) { return sizes[dims]; });
  return found;
}

}  // namespace stepscope
