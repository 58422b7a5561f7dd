#include "evidence/program/unread_gradients.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <compare>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "evidence/collective_evidence.h"
#include "evidence/program/backward_nodes.h"
#include "evidence/program/forward_steps.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// With fewer steps that update, another optimizer may only not have had its
// turn.
constexpr size_t kLeastUpdates = 3;

// A parameter's AccumulateGrad node.
struct Kept {
  RowId row = kNone;
  TensorShape gradient = {};
  bool adds = false;  // to a gradient that was there
  bool unread = false;
  bool cleared = false;  // unread, because it was cleared before
};
struct PassNode {
  RowId row = kNone;  // the outermost range of the engine
  std::vector<Kept> kept = {};
};
// What one call of backward() ran, in time order.
struct BackwardPass {
  size_t step = 0;  // in Steps::windows
  std::vector<PassNode> nodes = {};
};

using KeptBySize = std::map<Dims, std::vector<Kept*>>;

// Valid while the pass lives and gets no more nodes.
KeptBySize GroupedBySize(BackwardPass& pass) {
  KeptBySize by_size;
  for (PassNode& node : pass.nodes) {
    for (Kept& one : node.kept) by_size[one.gradient.dims].push_back(&one);
  }
  return by_size;
}

double CountOf(const std::map<Dims, double>& counts, const Dims& dims) {
  const auto found = counts.find(dims);
  return found == counts.end() ? 0 : found->second;
}

struct Passes {
  std::vector<BackwardPass> passes = {};
  bool nested = false;   // a node runs another backward pass
  bool threads = false;  // several threads run nodes with parameters
  bool sizes_known = true;
};

// The engine takes the node with the highest number of those that are ready,
// so numbers fall within a pass. AccumulateGrad runs right behind the node that
// makes the gradient.
Passes FindPasses(const AnalysisContext& m) {
  Passes found;
  const Trace& trace = m.trace;
  RowId thread = kNone;
  int64_t last = -1;
  std::set<RowId> adding;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    if (AddsToGradient(trace, row)) adding.insert(trace.ops()[row].parent);
  }
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (m.tree.traits(row).accumulate_grad) {
      const Op& outer = trace.ops()[OutermostOf(trace, row)];
      found.nested |= !trace.name(outer.name).ends_with("AccumulateGrad");
      found.threads |= thread != kNone && op.thread != thread;
      thread = op.thread;
      const TensorShape gradient = TensorArgument(trace, row, 0);
      found.sizes_known &= gradient.known();
      if (found.passes.empty()) continue;
      found.passes.back().nodes.back().kept.push_back(
          {.row = row, .gradient = gradient, .adds = adding.contains(row)});
      continue;
    }
    if (op.kind != OpKind::kBackward || op.parent != kNone || op.sequence < 0) {
      continue;
    }
    const size_t step = WindowAt(m.steps, &StepWindow::host, op.begin_ns);
    if (found.passes.empty() || found.passes.back().step != step ||
        op.sequence > last) {
      found.passes.push_back({.step = step});
    }
    last = op.sequence;
    found.passes.back().nodes.push_back({.row = row});
  }
  return found;
}

// How often each size occurs in the longest list of an argument of `op`: a
// fused op takes parameters, gradients and state, of each one list.
std::map<Dims, double> CountSizes(const Trace& trace, const Op& op) {
  std::map<Dims, double> most;
  for (const Argument& argument : trace.op_inputs()[op.inputs].arguments) {
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

// What happens to tensors outside forward and backward.
struct Updates {
  std::map<Dims, double> tensors = {};  // updated at most, by size
  // Those that optimizers update, and their steps; if none was recorded as
  // such, the same as `tensors`. A moving average of the weights is not among
  // them.
  std::map<Dims, double> stepped = {};
  std::vector<Span> steps = {};
  std::set<Dims> taken = {};  // by any op between backward and the next forward
  std::vector<int64_t> times = {};  // of updates of known sizes
  bool all_known = true;            // each step of an optimizer shows all sizes
  bool in_backward = false;         // an optimizer runs in hooks
  // Sizes that are set to zero, and whether lists of unknown sizes are.
  std::set<Dims> zeroed = {};
  bool unknown_zeroed = false;
};

bool IsListUpdate(std::string_view name) {
  return name.starts_with("aten::_foreach_") ||
         name.starts_with("aten::_fused_");
}

// True for an op that may write to a parameter: an update of the optimizer, or
// one in place elsewhere. Those in backward are of optimizers that run in hooks
// of AccumulateGrad.
bool MayUpdate(const AnalysisContext& m, RowId row) {
  const Op& op = m.trace.ops()[row];
  const std::string_view name = m.trace.name(op.name);
  if (op.inputs == kNone || !IsUpdate(name) || m.tree.traits(row).zeroing) {
    return false;
  }
  if (m.tree.in_backward(row)) {
    const RowId node = OutermostOf(m.trace, row);
    return m.trace.name(m.trace.ops()[node].name).ends_with("AccumulateGrad") &&
           name != "aten::copy_" && !AddsToGradient(m.trace, row);
  }
  return IsListUpdate(name) || (name.ends_with("_") && op.parent == kNone) ||
         LengthIn(m.parts.optimizer.spans, {op.begin_ns, op.end_ns}) > 0;
}

// True if each of `steps` of optimizers shows what it updates. Those with
// kernels of their own, and compiled ones, do not.
bool AllShowUpdates(const std::vector<Span>& steps,
                    const std::vector<int64_t>& times) {
  return std::ranges::all_of(steps, [&](const Span& step) {
    const auto next = std::ranges::lower_bound(times, step.begin_ns);
    return next != times.end() && *next < step.end_ns;
  });
}

// What tells apart the updates of two optimizers: the class, and whether it
// updates lists in one op, lists in several, or single tensors.
struct OptimizerKind {
  NameId range = 0;  // "Optimizer.step#SGD.step"; 0: outside such a range
  NameId fused = 0;  // the op
  bool lists = false;
  // clang-tidy 14 takes the 0 that the result is compared with for a pointer.
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

Updates FindUpdates(const AnalysisContext& m) {
  const Trace& trace = m.trace;
  Updates found;
  std::map<int64_t, const Range*> optimizer_steps;
  for (const Range& range : trace.ranges()) {
    if (range.kind != RangeKind::kOptimizer) continue;
    optimizer_steps[range.begin_ns] = &range;
    if (trace.name(range.name).starts_with("Optimizer.step")) {
      found.steps.push_back({range.begin_ns, range.end_ns});
    }
  }
  // How often each op occurs in a step at most, with the same sizes. Optimizers
  // that take turns have lists of their own, which add up.
  using OpOf = std::pair<OptimizerKind, NameId>;
  using Key = std::pair<OpOf, std::map<Dims, double>>;
  std::map<Key, double> most, now;
  size_t current = m.steps.windows.size();
  bool after_backward = false;
  const auto close = [&] {
    for (const auto& [key, times] : now) {
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
      after_backward = false;
    }
    if (traits.zeroing && !in_backward) {
      found.unknown_zeroed |= op.inputs == kNone || TakesCutList(trace, row);
    }
    if (op.inputs == kNone) continue;
    if (traits.zeroing && !in_backward) {
      for (const auto& [dims, count] : CountSizes(trace, op)) {
        found.zeroed.insert(dims);
      }
    }
    if (after_backward && !in_backward && !traits.bookkeeping &&
        !traits.zeroing) {
      for (const auto& [dims, count] : CountSizes(trace, op)) {
        found.taken.insert(dims);
      }
    }
    if (!MayUpdate(m, row) || (op.parent != kNone && MayUpdate(m, op.parent))) {
      continue;
    }
    found.in_backward |= in_backward;
    if (TakesCutList(trace, row)) {
      found.all_known = false;
      continue;
    }
    ++now[{{KindOf(trace, row, optimizer_steps), op.name},
           CountSizes(trace, op)}];
    found.times.push_back(op.begin_ns);
  }
  close();
  std::map<OpOf, std::map<Dims, double>> by_op;
  for (const auto& [key, times] : most) {
    for (const auto& [dims, count] : key.second) {
      by_op[key.first][dims] += count * times;
    }
  }
  // An optimizer may call several ops for each tensor.
  std::map<OptimizerKind, std::map<Dims, double>> by_kind;
  for (const auto& [op, sizes] : by_op) {
    for (const auto& [dims, count] : sizes) {
      double& tensors = by_kind[op.first][dims];
      tensors = std::max(tensors, count);
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

// Sizes of which every gradient in the recording is added to an earlier one,
// although optimizers step: whoever updates parameters sets their gradients to
// None or zero.
std::set<Dims> NeverCleared(const std::vector<BackwardPass>& passes,
                            const Updates& updates) {
  std::set<Dims> sizes, cleared = updates.zeroed;
  if (updates.unknown_zeroed) return sizes;
  for (const BackwardPass& pass : passes) {
    for (const PassNode& node : pass.nodes) {
      for (const Kept& one : node.kept) {
        (one.adds ? sizes : cleared).insert(one.gradient.dims);
      }
    }
  }
  std::erase_if(sizes,
                [&](const Dims& dims) { return cleared.contains(dims); });
  return sizes;
}

// Marks the gradients of the pass that are unread; returns whether others are
// read.
bool MarkUnread(const Updates& updates, const std::set<Dims>& never_cleared,
                BackwardPass& pass) {
  bool any_read = false;
  for (const auto& [dims, kept] : GroupedBySize(pass)) {
    const double updated = CountOf(updates.tensors, dims);
    // Sizes say nothing about scalars, as steps of optimizers are.
    if (!dims.empty() && updated == 0 && !updates.taken.contains(dims) &&
        (updates.all_known || never_cleared.contains(dims))) {
      for (Kept* one : kept) one->unread = true;
      continue;
    }
    any_read = true;
    const auto adding = std::ranges::count_if(kept, &Kept::adds);
    if (updates.all_known && updated > 0 &&
        static_cast<double>(kept.size()) - updated ==
            static_cast<double>(adding)) {
      for (Kept* one : kept) one->unread |= one->adds;
    }
  }
  return any_read;
}

// Marks the gradients that were cleared before anything read them.
class ClearedFinder {
 public:
  ClearedFinder(const AnalysisContext& context, const Updates& updates)
      : m_(context), updates_(updates) {}

  // REQUIRES: all optimizers show what they update, and none runs in hooks.
  // `passes` are in time order.
  void Mark(std::vector<BackwardPass>& passes) {
    size_t place = 0;  // of the pass within its step
    std::vector<std::vector<PassKept>> steps;
    for (size_t i = 0; i < passes.size(); ++i) {
      BackwardPass& pass = passes[i];
      const bool same_step = i > 0 && passes[i - 1].step == pass.step;
      place = same_step ? place + 1 : 0;
      if (!same_step) steps.emplace_back();
      PassKept& now = steps.back().emplace_back();
      now.by_size = GroupedBySize(pass);
      for (const auto& [dims, kept] : now.by_size) Take(dims, kept, place);
      now.read = ReadIn(EndOf(pass), i + 1 < passes.size()
                                         ? BeginOf(passes[i + 1])
                                         : std::numeric_limits<int64_t>::max());
      for (const auto& [dims, count] : now.read) pending_.erase(dims);
    }
    // What the recording's last step clears is seen in the next one only.
    for (auto& [dims, pending] : pending_) {
      if (cleared_at_[{dims, pending.place}] >= kLeastUpdates) {
        MarkAll(pending.kept);
      }
    }
    for (std::vector<PassKept>& step : steps) MarkShared(step);
  }

 private:
  // One pass: its gradients by size, and how many of a size the most that any
  // op read before the next pass.
  struct PassKept {
    KeptBySize by_size = {};
    std::map<Dims, double> read = {};
  };
  // Gradients of a size since it was read or cleared.
  struct Pending {
    std::vector<Kept*> kept = {};
    size_t place = 0;
  };

  int64_t BeginOf(const BackwardPass& pass) const {
    return m_.trace.ops()[pass.nodes.front().row].begin_ns;
  }
  int64_t EndOf(const BackwardPass& pass) const {
    const PassNode& last = pass.nodes.back();
    int64_t end_ns = m_.trace.ops()[last.row].end_ns;
    for (const Kept& one : last.kept) {
      end_ns = std::max(end_ns,
                        m_.trace.ops()[OutermostOf(m_.trace, one.row)].end_ns);
    }
    return end_ns;
  }

  // An op reads gradients of the sizes that it takes. From the next forward
  // pass on only updates do, because layers take their parameters, which have
  // these sizes; and once an optimizer has stepped, only optimizers do: what
  // follows takes the parameters, as a moving average.
  std::map<Dims, double> ReadIn(int64_t begin_ns, int64_t end_ns) const {
    std::map<Dims, double> read;
    // Of optimizers that take one tensor at a time, the op that takes most.
    std::map<NameId, std::map<Dims, double>> one_by_one;
    const auto& ops = m_.trace.ops();
    bool forward = false;
    auto op = std::ranges::lower_bound(ops, begin_ns, {}, &Op::begin_ns);
    auto step =
        std::ranges::lower_bound(updates_.steps, begin_ns, {}, &Span::begin_ns);
    const auto first_step = step;
    for (; op != ops.end() && op->begin_ns < end_ns; ++op) {
      const RowId row = static_cast<RowId>(op - ops.begin());
      const OpTraits& traits = m_.tree.traits(row);
      if (m_.tree.in_backward(row) || traits.zeroing) continue;
      forward |= traits.matmul && op->thread == m_.steps.thread;
      while (step != updates_.steps.end() && step->end_ns <= op->begin_ns) {
        ++step;
      }
      const bool steps =
          step != updates_.steps.end() && step->begin_ns <= op->begin_ns;
      const bool reads =
          steps || (updates_.steps.empty() ? !forward || MayUpdate(m_, row)
                                           : !forward && step == first_step);
      if (op->inputs == kNone || !reads) continue;
      const bool list = IsListUpdate(m_.trace.name(op->name));
      for (const auto& [dims, count] : CountSizes(m_.trace, *op)) {
        double& single = one_by_one[op->name][dims];
        if (!list) single += count;
        read[dims] = std::max({read[dims], count, single});
      }
    }
    return read;
  }

  // True if these are the gradients of all parameters of the size; several
  // networks may have such. Sizes say nothing about scalars.
  bool HasAll(const Dims& dims, const std::vector<Kept*>& kept) const {
    return !dims.empty() &&
           static_cast<double>(kept.size()) == CountOf(updates_.stepped, dims);
  }

  // What `place`, a pass within its step, does with all gradients of a size.
  void Take(const Dims& dims, const std::vector<Kept*>& kept, size_t place) {
    if (!HasAll(dims, kept)) {
      pending_.erase(dims);
      return;
    }
    Pending& pending = pending_[dims];
    if (std::ranges::none_of(kept, &Kept::adds)) {
      if (!pending.kept.empty()) {
        ++cleared_at_[{dims, pending.place}];
        MarkAll(pending.kept);
      }
      pending.kept.clear();
    } else if (!std::ranges::all_of(kept, &Kept::adds)) {
      pending_.erase(dims);
      return;
    }
    pending.place = place;
    pending.kept.insert(pending.kept.end(), kept.begin(), kept.end());
  }

  // Sizes that several networks have, such as hidden layers of an actor and its
  // critic. Of each parameter of the size the step reads one gradient, never
  // more than the pass before made anew: then those that a pass adds to are not
  // read, nor what it made anew beyond those read. Gradients of sizes of their
  // own must say so, too, because an optimizer could read the others instead.
  // Backward comes last to the network that another one reads.
  void MarkShared(std::vector<PassKept>& step) const {
    for (const auto& [dims, parameters] : updates_.stepped) {
      if (dims.empty() || parameters < 2) continue;
      double read = 0;
      bool explained = true;
      for (const PassKept& pass : step) {
        const double here = CountOf(pass.read, dims);
        const auto kept = pass.by_size.find(dims);
        const auto made =
            kept == pass.by_size.end()
                ? 0
                : std::ranges::count(kept->second, false, &Kept::adds);
        explained &= here <= static_cast<double>(made);
        read += here;
      }
      if (!explained || read != parameters) continue;
      for (PassKept& pass : step) {
        const auto kept = pass.by_size.find(dims);
        if (kept == pass.by_size.end()) continue;
        MarkBut(CountOf(pass.read, dims), pass, kept->second);
      }
    }
  }

  // Marks `kept` but for the first `read` that are made anew.
  void MarkBut(double read, const PassKept& pass,
               const std::vector<Kept*>& kept) const {
    for (Kept* one : kept) {
      if (!one->adds && read-- > 0) continue;
      if (SaysSo(pass, one->adds)) MarkAll({one});
    }
  }

  // True if gradients of a size that only one network has are cleared.
  bool SaysSo(const PassKept& pass, bool adds) const {
    return std::ranges::any_of(pass.by_size, [&](const auto& size) {
      return HasAll(size.first, size.second) &&
             std::ranges::all_of(size.second, [&](const Kept* one) {
               return one->cleared && one->adds == adds;
             });
    });
  }

  static void MarkAll(const std::vector<Kept*>& kept) {
    for (Kept* one : kept) one->unread = one->cleared = true;
  }

  const AnalysisContext& m_;
  const Updates& updates_;
  std::map<Dims, Pending> pending_;
  std::map<std::pair<Dims, size_t>, size_t> cleared_at_;
};

// The ops in [first, last] of the node's thread that make the gradient of a
// weight or bias of the size `dims`.
void AddWeightOps(const AnalysisContext& m, const PassNode* before,
                  const PassNode& node, const Dims& dims,
                  std::vector<ShortenedOp>& ops) {
  const Op& last = m.trace.ops()[node.row];
  const Op& first = m.trace.ops()[before != nullptr ? before->row : node.row];
  const std::span<const RowId> rows = m.tree.of_thread(last.thread);
  auto it = std::ranges::lower_bound(rows, first.begin_ns, {}, [&](RowId row) {
    return m.trace.ops()[row].begin_ns;
  });
  for (; it != rows.end() && m.trace.ops()[*it].begin_ns < last.end_ns; ++it) {
    const Op& op = m.trace.ops()[*it];
    const std::string_view name = m.trace.name(op.name);
    if (name == "aten::convolution_backward" && dims.size() > 2) {
      // As many operations each for the input and for the weight.
      constexpr size_t kMask = 10;
      const auto& inputs = op.inputs == kNone
                               ? std::vector<Argument>()
                               : m.trace.op_inputs()[op.inputs].arguments;
      const bool only_weight =
          inputs.size() > kMask &&
          m.trace.name(inputs[kMask].concrete).starts_with("[False");
      ops.push_back({*it, only_weight ? 0 : 0.5});
      return;
    }
    if (m.tree.traits(*it).matmul && m.tree.computes(*it) && dims.size() == 2) {
      const MatmulShape shape = CostOf(m.trace, *it).matmul;
      if ((shape.m == dims[0] && shape.n == dims[1]) ||
          (shape.n == dims[0] && shape.m == dims[1])) {
        ops.push_back({*it, 0});
        return;
      }
    }
    if (name == "aten::sum" && dims.size() == 1 &&
        op.parent == OutermostOf(m.trace, *it)) {
      const TensorShape summed = TensorArgument(m.trace, *it, 0);
      if (!summed.dims.empty() && summed.dims.back() == dims[0]) {
        ops.push_back({*it, 0});
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
    return std::ranges::any_of(
        node.kept, [&](const Kept& one) { return one.unread == unread; });
  };
  size_t tail = 0;  // the first node behind the last trained parameter
  for (size_t i = 0; i < pass.nodes.size(); ++i) {
    if (has(pass.nodes[i], false)) tail = i + 1;
  }
  const bool ends_unread = std::any_of(
      pass.nodes.begin() + static_cast<std::ptrdiff_t>(tail), pass.nodes.end(),
      [&](const PassNode& node) { return has(node, true); });
  for (size_t i = 0; i < pass.nodes.size(); ++i) {
    const PassNode& node = pass.nodes[i];
    const bool whole = i >= tail && ends_unread;
    if (whole) found.ops.push_back({node.row, 0});
    for (const Kept& one : node.kept) {
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
  Passes all = FindPasses(m);
  if (all.passes.empty()) return found;
  if (!all.sizes_known) {
    return Unknown("the sizes of gradients were not recorded (record_shapes)");
  }
  if (all.nested || all.threads) {
    return Unknown("backward passes run inside others, or on several threads");
  }
  const Updates updates = FindUpdates(m);
  const std::set<Dims> never_cleared = NeverCleared(all.passes, updates);
  if (updates.all_known && !updates.in_backward) {
    ClearedFinder(m, updates).Mark(all.passes);
  }
  bool any_read = false;
  std::set<size_t> steps;
  std::map<Dims, double> sizes;
  bool all_add = true;
  for (BackwardPass& pass : all.passes) {
    if (!std::ranges::binary_search(m.steps.steady, pass.step)) continue;
    any_read |= MarkUnread(updates, never_cleared, pass);
    AddNodes(m, pass, found);
    for (const PassNode& node : pass.nodes) {
      for (const Kept& one : node.kept) {
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
  found.never_zeroed = all_add && !found.cleared;
  for (const auto& [dims, bytes] : sizes) found.sizes.push_back(dims);
  std::ranges::stable_sort(found.sizes, std::greater(),
                           [&](const Dims& dims) { return sizes[dims]; });
  return found;
}

}  // namespace stepscope
