#include "evidence/program/op_loops.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "device/blocking.h"
#include "device/kernel_uses.h"
#include "evidence/program/op_shapes.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "steps/step_facts.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// A loop with fewer passes may be one of several of its kind, as for the boxes
// of each image. With still fewer, ops may repeat by chance. Our own choice.
constexpr int64_t kLeastInnerPasses = 4;
// The longest chain to search for, in outermost ops.
constexpr size_t kLongestPass = 64;
// Calling an op takes some 5 to 20 us. Only time beyond this is computing.
constexpr double kCallingNs = 20'000;
// The least mean number of passes of a loop that runs backwards in time. Fewer
// may be chance. Our own choice.
constexpr int64_t kLeastScan = 4;
constexpr int64_t kMostUploads = 8;  // per pass; an input is a few tensors
                                     // (our own choice)

// Passes of a loop that differ are alike if they have this share of their ops
// in common: augmentation flips some images and not others. Our own choice.
constexpr double kAlike = 0.6;

// Where the passes of a loop begin, as indices into its ops; the first is 0.
using Begins = std::vector<size_t>;

Begins EqualPasses(size_t passes, size_t period) {
  Begins begins;
  for (size_t i = 0; i < passes; ++i) begins.push_back(i * period);
  return begins;
}

// True for ops that pick an element of a tensor, or make a tensor from a
// number.
bool Picks(std::string_view op) {
  return IsAnyOf(op, {"aten::gather", "aten::index", "aten::index_select",
                      "aten::lift_fresh", "aten::narrow", "aten::select",
                      "aten::slice", "aten::unbind"});
}

// True for those of them that make a view at an index.
bool IsView(std::string_view op) {
  return IsAnyOf(op, {"aten::narrow", "aten::select", "aten::slice"});
}

// Returns the spans in which ops repeat for known reasons, which other rules
// judge.
std::vector<Span> KnownSpans(const AnalysisContext& m) {
  std::vector<Span> spans = m.parts.optimizer.spans;
  for (const Span& span : SavingSpans(m.trace, m.steps.thread)) {
    spans.push_back(span);
  }
  for (RowId row : m.parts.zero_grad.zeroing) {
    const Op& op = m.trace.ops()[row];
    spans.push_back({op.begin_ns, op.end_ns});
  }
  // Copies out of buckets follow each other while collectives run.
  for (const Collective& one : m.collectives) spans.push_back(one.moved);
  const std::vector<Span> loading = LoaderSpans(m.trace, m.steps.thread);
  spans.insert(spans.end(), loading.begin(), loading.end());
  return Merge(std::move(spans));
}

class LoopFinder {
 public:
  explicit LoopFinder(const AnalysisContext& context)
      : m_(context), known_(KnownSpans(context)) {
    for (NameId name = 0; name < context.trace.name_count(); ++name) {
      picks_.push_back(Picks(context.trace.name(name)));
    }
  }

  std::vector<OpLoop> Find() {
    std::vector<OpLoop> found;
    size_t looked = 0;
    for (const auto& [step, ops] : OutermostOps()) {
      AddLoops(step, ops, found);
      // Stop early: a loop that does not run in every step is not worth a
      // change.
      if (++looked == 2 && found.empty()) break;
    }
    return found;
  }

 private:
  // A short loop: the index of its first op, and its passes.
  struct Inner {
    size_t first = 0, passes = 0;
  };

  const Op& OpAt(RowId row) const { return m_.trace.ops()[row]; }

  std::vector<NameId> NamesOf(std::span<const RowId> ops) const {
    std::vector<NameId> names;
    for (RowId row : ops) names.push_back(OpAt(row).name);
    return names;
  }

  std::map<size_t, std::vector<RowId>> OutermostOps() const {
    std::map<size_t, std::vector<RowId>> by_step;
    for (RowId row : m_.tree.of_thread(m_.steps.thread)) {
      const Op& op = OpAt(row);
      if (op.parent != kNone || m_.tree.in_backward(row) ||
          m_.tree.traits(row).bookkeeping || Covers(known_, op.begin_ns)) {
        continue;
      }
      const size_t step = SteadyStepAt(m_.steps, op.begin_ns);
      if (step != m_.steps.windows.size()) by_step[step].push_back(row);
    }
    return by_step;
  }

  // Searches for the shortest chains first, so that a chain repeated twice is
  // not taken for one longer chain.
  void AddLoops(size_t step, std::span<const RowId> ops,
                std::vector<OpLoop>& found) {
    std::vector<bool> taken(ops.size());
    const auto add = [&](size_t first, size_t passes, size_t period) {
      const std::span<const RowId> loop = ops.subspan(first, passes * period);
      const int64_t from_ns = first > 0 ? OpAt(ops[first - 1]).end_ns
                                        : m_.steps.windows[step].host.begin_ns;
      std::optional<OpLoop> one =
          Loop(step, from_ns, loop, EqualPasses(passes, period));
      if (!one) return;
      for (RowId row : Iterated(from_ns, one->forward.begin_ns)) {
        Measure(m_.steps.thread, {OpAt(row).begin_ns, OpAt(row).end_ns}, *one);
      }
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(first),
                  loop.size(), true);
      found.push_back(*std::move(one));
    };
    for (size_t period = 1; period <= kLongestPass; ++period) {
      std::map<std::vector<NameId>, std::vector<Inner>> inner;  // by chain
      size_t equal = 0;  // ops before `i` that equal those a period earlier
      for (size_t i = period; i <= ops.size(); ++i) {
        if (i < ops.size() && !taken[i] && !taken[i - period] &&
            OpAt(ops[i]).name == OpAt(ops[i - period]).name) {
          ++equal;
          continue;
        }
        const size_t passes = (equal + period) / period;
        const size_t first = i - equal - period;
        if (equal > 0 && static_cast<int64_t>(passes) >= kLeastPasses) {
          add(first, passes, period);
        } else if (equal > 0 &&
                   static_cast<int64_t>(passes) >= kLeastInnerPasses) {
          inner[NamesOf(ops.subspan(first, period))].push_back({first, passes});
        }
        equal = 0;
      }
      for (const auto& [chain, loops] : inner) {
        size_t passes = 0;
        for (const Inner& one : loops) passes += one.passes;
        if (static_cast<int64_t>(passes) < kLeastPasses) continue;
        for (const Inner& one : loops) add(one.first, one.passes, period);
      }
    }
    AddVaryingLoops(step, ops, taken, found);
  }

  // Adds loops whose passes differ: each begins with a select of the next
  // element of the same tensor. Where indices were not recorded, the tensor
  // must have as many elements as the loop has passes, if its sizes are known.
  void AddVaryingLoops(size_t step, std::span<const RowId> ops,
                       const std::vector<bool>& taken,
                       std::vector<OpLoop>& found) {
    Begins begins;          // indices into `ops`
    RowId element = kNone;  // the select of the last pass
    bool rises = true;      // so do the indices
    const auto close = [&] {
      if (static_cast<int64_t>(begins.size()) >= kLeastPasses &&
          (rises || TakesAll(element, begins.size()))) {
        const size_t first = begins.front();
        const size_t usual = (begins.back() - first) / (begins.size() - 1);
        const size_t end = std::min(begins.back() + usual, ops.size());
        for (size_t& begin : begins) begin -= first;
        std::optional<OpLoop> one =
            Loop(step, m_.steps.windows[step].host.begin_ns,
                 ops.subspan(first, end - first), begins);
        if (one) found.push_back(*std::move(one));
      }
      begins.clear();
      rises = true;
    };
    for (RowId row :
         m_.tree.of_thread(m_.steps.thread, m_.steps.windows[step].host)) {
      if (m_.trace.name(OpAt(row).name) != "aten::select" ||
          OpAt(row).parent != kNone) {
        continue;
      }
      const auto at =
          static_cast<size_t>(std::ranges::lower_bound(
                                  ops, OpAt(row).begin_ns, {},
                                  [&](RowId op) { return OpAt(op).begin_ns; }) -
                              ops.begin());
      if (at >= ops.size() || taken[at]) {
        close();
        continue;
      }
      // The pass may pick elements of other tensors as well.
      if (!begins.empty() &&
          (at == begins.back() ||
           DimsOf(m_.trace, row, 0) != DimsOf(m_.trace, element, 0))) {
        continue;
      }
      if (begins.size() >= 2 &&
          !AreAlike(ops, begins.end()[-2], begins.back(), at)) {
        close();
      }
      if (!begins.empty()) {
        const auto before = NumberArgument(m_.trace, element, 2);
        rises &= before && NumberArgument(m_.trace, row, 2) == *before + 1;
      }
      begins.push_back(at);
      element = row;
    }
    close();
  }

  // True if the sizes of the tensor of which `select` takes an element are not
  // known, or it has so many elements.
  bool TakesAll(RowId select, size_t elements) const {
    const Dims& dims = DimsOf(m_.trace, select, 0);
    if (dims.empty()) return true;
    const auto dim = DimArgument(m_.trace, select, 1, dims.size(), 0);
    return dim && dims[*dim] == static_cast<int64_t>(elements);
  }

  // True if ops [begin, middle) and [middle, end) have most names in common.
  bool AreAlike(std::span<const RowId> ops, size_t begin, size_t middle,
                size_t end) const {
    std::map<NameId, int64_t> count;
    for (size_t i = begin; i < middle; ++i) ++count[OpAt(ops[i]).name];
    size_t same = 0;
    for (size_t i = middle; i < end; ++i) {
      same += count[OpAt(ops[i]).name]-- > 0;
    }
    return static_cast<double>(same) >=
           kAlike * static_cast<double>(std::max(middle - begin, end - middle));
  }

  // The ops of the pass that occurs most often.
  std::span<const RowId> UsualPass(std::span<const RowId> ops,
                                   const Begins& begins) const {
    std::map<std::vector<NameId>, size_t> passes;
    std::span<const RowId> usual;
    size_t most = 0;
    for (size_t i = 0; i < begins.size(); ++i) {
      const size_t end = i + 1 < begins.size() ? begins[i + 1] : ops.size();
      const auto pass = ops.subspan(begins[i], end - begins[i]);
      if (const size_t count = ++passes[NamesOf(pass)]; count > most) {
        most = count;
        usual = pass;
      }
    }
    return usual;
  }

  // `from_ns` is where the op before the loop ends, or else the step starts.
  std::optional<OpLoop> Loop(size_t step, int64_t from_ns,
                             std::span<const RowId> ops, const Begins& begins) {
    OpLoop loop{
        .step = step,
        .passes = static_cast<int64_t>(begins.size()),
        .forward = {OpAt(ops.front()).begin_ns, OpAt(ops.back()).end_ns}};
    const std::span<const RowId> usual = UsualPass(ops, begins);
    for (RowId row : usual) {
      loop.chain += (loop.chain.empty() ? "" : " > ") +
                    std::string(m_.trace.name(OpAt(row).name));
    }
    const std::vector<std::vector<int64_t>> picks = Picked(ops, begins);
    const bool own_passes =
        HasOwnBackward(loop) && Rises(ops, begins, picks, /*one=*/true);
    if (!IsPerElement(from_ns, own_passes, TakesTheSame(ops, begins, picks),
                      loop)) {
      return {};
    }
    loop.scans = Scans(picks);
    std::vector<RowId> nodes = m_.backward.Of(m_.steps.thread, loop.forward);
    loop.has_backward = !nodes.empty();
    // If nodes run before the loop ends, each pass has its own backward pass,
    // so the passes cannot be layers of one network.
    const size_t inside = std::erase_if(nodes, [&](RowId node) {
      return OpAt(node).begin_ns < loop.forward.end_ns;
    });
    const bool are_layers =
        nodes.empty()
            ? inside == 0 && loop.has_products && !loop.round_trips &&
                  !loop.attends && !Rises(ops, begins, picks) &&
                  !IteratesOver(from_ns, loop) &&
                  !TakesAnElement(step, usual, loop)
            : 2 * GradientsAmong(m_.trace, m_.tree, nodes) >= loop.passes;
    if (are_layers || (inside > 0 && Updates(loop.forward))) return {};
    Measure(m_.steps.thread, loop.forward, loop);
    std::map<RowId, std::vector<Span>> backward;
    for (RowId node : nodes) {
      backward[OpAt(node).thread].push_back(
          {OpAt(node).begin_ns, OpAt(node).end_ns});
    }
    for (auto& [thread, spans] : backward) {
      for (const Span& span : MergeAcross(std::move(spans), kFrameworkGapNs)) {
        Measure(thread, span, loop);
      }
    }
    return loop;
  }

  // Returns, for each pass, the index of each select and the start of each
  // slice. They are searched in the time of the pass, because `ops` does not
  // contain views.
  std::vector<std::vector<int64_t>> Picked(std::span<const RowId> ops,
                                           const Begins& begins) const {
    std::vector<std::vector<int64_t>> picks;
    for (size_t i = 1; i < begins.size(); ++i) {
      std::vector<int64_t>& now = picks.emplace_back();
      const Span pass = {OpAt(ops[begins[i - 1]]).begin_ns,
                         OpAt(ops[begins[i]]).begin_ns};
      for (RowId row : PickingIn(pass)) {
        now.push_back(NumberArgument(m_.trace, row, 2).value_or(0));
      }
    }
    return picks;
  }

  // True if each pass selects at the same indices, as the two coordinates of
  // all points. Such passes do not differ by the element that they are about.
  bool TakesTheSame(std::span<const RowId> ops, const Begins& begins,
                    const std::vector<std::vector<int64_t>>& picks) const {
    if (picks.empty() || picks[0].empty() ||
        std::ranges::count(picks, picks[0]) <
            static_cast<int64_t>(picks.size())) {
      return false;
    }
    const std::vector<RowId> first =
        PickingIn({OpAt(ops[0]).begin_ns, OpAt(ops[begins[1]]).begin_ns});
    return std::ranges::all_of(first, [&](RowId row) {
      return NumberArgument(m_.trace, row, 2).has_value();
    });
  }

  // True for a gather along another dimension than the first, which takes
  // something of each element.
  bool TakesOfEach(RowId row) const {
    if (m_.trace.name(OpAt(row).name) != "aten::gather") return false;
    const Dims& dims = DimsOf(m_.trace, row, 0);
    return DimArgument(m_.trace, row, 1, dims.size()).value_or(0) > 0;
  }

  // Returns how many loops run backwards in time here; 0 if none. An index
  // falls from pass to pass within such a loop, and rises where the next loop
  // starts.
  static int64_t Scans(const std::vector<std::vector<int64_t>>& picks) {
    if (picks.empty()) return 0;
    std::vector<int64_t> before, fell(picks[0].size()), rose(picks[0].size());
    int64_t joints = 0;  // passes whose number of selects differs
    for (size_t i = 1; i < picks.size(); ++i) {
      const std::vector<int64_t>& now = picks[i];
      if (now.size() != fell.size()) {
        ++joints;
        before.clear();
        continue;
      }
      for (size_t k = 0; k < before.size(); ++k) {
        ++(now[k] < before[k] ? fell : rose)[k];
      }
      before = now;
    }
    for (size_t k = 0; k < fell.size(); ++k) {
      const int64_t scans = 1 + rose[k] + joints;
      if (fell[k] >= kLeastScan * scans) return scans;
    }
    return 0;
  }

  // Returns the selects and slices in `span`.
  std::vector<RowId> PickingIn(Span span) const {
    std::vector<RowId> rows;
    for (RowId row : m_.tree.of_thread(m_.steps.thread, span)) {
      if (picks_[OpAt(row).name] && IsAnyOf(m_.trace.name(OpAt(row).name),
                                            {"aten::select", "aten::slice"})) {
        rows.push_back(row);
      }
    }
    return rows;
  }

  // True if the index of a layer's input rises from pass to pass. The passes
  // then work on elements and are not layers of one network. `one`: only
  // selects count, because a slice may be a micro-batch.
  bool Rises(std::span<const RowId> ops, const Begins& begins,
             const std::vector<std::vector<int64_t>>& picks,
             bool one = false) const {
    if (picks.empty()) return false;
    const std::vector<RowId> first =
        PickingIn({OpAt(ops[0]).begin_ns, OpAt(ops[begins[1]]).begin_ns});
    for (size_t k = 0; k < first.size(); ++k) {
      if (one && m_.trace.name(OpAt(first[k]).name) != "aten::select") continue;
      const bool rises =
          std::ranges::adjacent_find(
              picks, [&](const auto& now, const auto& next) {
                return k >= now.size() || k >= next.size() || next[k] <= now[k];
              }) == picks.end();
      if (!rises) continue;
      const int64_t elements = ElementsIn(DimsOf(m_.trace, first[k], 0));
      for (RowId row : ops.first(begins[1])) {
        const size_t weight = WeightArgument(m_.trace, row);
        if (weight == 0) continue;
        const int64_t taken = ElementsIn(DimsOf(m_.trace, row, weight - 1));
        if (taken > 0 && elements % taken == 0) return true;
      }
    }
    return false;
  }

  // Returns the calls of aten::unbind, with which a loop over a tensor starts.
  // It makes one tensor of each element.
  std::vector<RowId> Iterated(int64_t from_ns, int64_t to_ns) const {
    std::vector<RowId> found;
    const std::span<const RowId> all = m_.tree.named("aten::unbind");
    for (auto row = std::ranges::lower_bound(
             all, from_ns, {}, [&](RowId one) { return OpAt(one).begin_ns; });
         row != all.end() && OpAt(*row).begin_ns < to_ns; ++row) {
      if (OpAt(*row).thread == m_.steps.thread) found.push_back(*row);
    }
    return found;
  }

  // True if, right before the loop, a tensor with one element per pass is taken
  // apart.
  bool IteratesOver(int64_t from_ns, const OpLoop& loop) const {
    return std::ranges::any_of(
        Iterated(from_ns, loop.forward.begin_ns), [&](RowId row) {
          const Dims& dims = DimsOf(m_.trace, row, 0);
          const auto dim = DimArgument(m_.trace, row, 1, dims.size(), 0);
          return dim && dims[*dim] == loop.passes;
        });
  }

  // True if a layer's input is as large as the elements of a tensor that was
  // taken apart earlier in the step, into at least as many elements as there
  // are passes. There may be more elements, because a pass with other ops
  // interrupts the loop.
  bool TakesAnElement(size_t step, std::span<const RowId> pass,
                      const OpLoop& loop) const {
    const int64_t begin_ns = m_.steps.windows[step].host.begin_ns;
    return std::ranges::any_of(
        Iterated(begin_ns, loop.forward.begin_ns), [&](RowId row) {
          const Dims& dims = DimsOf(m_.trace, row, 0);
          const auto dim = DimArgument(m_.trace, row, 1, dims.size(), 0);
          if (!dim || dims[*dim] < loop.passes) return false;
          const int64_t elements = ElementsIn(dims) / dims[*dim];
          return std::ranges::any_of(pass, [&](RowId op) {
            const size_t weight = WeightArgument(m_.trace, op);
            return weight > 0 &&
                   ElementsIn(DimsOf(m_.trace, op, weight - 1)) == elements;
          });
        });
  }

  // True if the optimizer runs in `loop`. Each pass then needs the weights that
  // the previous pass updated.
  bool Updates(Span loop) const {
    return std::ranges::any_of(m_.parts.optimizer.spans, [&](const Span& span) {
      return span.begin_ns < loop.end_ns && span.end_ns > loop.begin_ns;
    });
  }

  // True if each pass uploads something and waits for a result. The loop may
  // begin behind the first upload, and end before the last wait. More than a
  // few uploads per pass are weights that are kept on the host.
  bool MakesRoundTrips(const OpLoop& loop) const {
    const auto is_inside = [&](RowId thread, int64_t ns) {
      return thread == m_.steps.thread && ns >= loop.forward.begin_ns &&
             ns < loop.forward.end_ns;
    };
    const auto waits =
        std::ranges::count_if(m_.waits.all, [&](const HostWait& wait) {
          return wait.kind == WaitKind::kToHost &&
                 is_inside(wait.thread, wait.span.begin_ns);
        });
    if (waits + 1 < loop.passes) return false;
    const auto uploads =
        std::ranges::count_if(m_.trace.copies(), [&](const Copy& copy) {
          if (copy.call == kNone || copy.destination != MemoryKind::kDevice ||
              copy.source == MemoryKind::kDevice) {
            return false;
          }
          const RuntimeCall& call = m_.trace.runtime_calls()[copy.call];
          return is_inside(call.thread, call.begin_ns);
        });
    return uploads + 1 >= loop.passes && uploads <= kMostUploads * loop.passes;
  }

  // True if the loop runs ops of extensions, or products that only a kernel
  // shows. A layer with quantised weights may be one.
  bool RunsUnknownOps(const OpLoop& loop) const {
    const std::span<const RowId> rows =
        m_.tree.of_thread(m_.steps.thread, loop.forward);
    if (std::ranges::any_of(rows, [&](RowId row) {
          return !m_.trace.name(OpAt(row).name).starts_with("aten::");
        })) {
      return true;
    }
    return std::ranges::any_of(m_.kernels.uses, [&](const KernelUse& use) {
      const RowId call = m_.trace.kernels()[use.kernel].call;
      if (!use.multiplies || call == kNone) return false;
      const int64_t begin_ns = m_.trace.runtime_calls()[call].begin_ns;
      return begin_ns >= loop.forward.begin_ns &&
             begin_ns < loop.forward.end_ns &&
             (use.op == kNone ||
              m_.tree.traits(use.op).kind != KernelClass::kAttention);
    });
  }

  // True if each pass runs a backward pass, as one for the gradients of a
  // single task or sample. A recurrence runs one for all of its passes.
  bool HasOwnBackward(const OpLoop& loop) const {
    int64_t passes = 0;
    bool in_backward = false;
    for (RowId row : m_.tree.of_thread(m_.steps.thread, loop.forward)) {
      if (OpAt(row).parent != kNone) continue;
      passes += m_.tree.in_backward(row) && !in_backward;
      in_backward = m_.tree.in_backward(row);
    }
    return passes >= loop.passes;
  }

  // True if each pass picks an element, reads a value, or multiplies one row or
  // sample, or if the elements of a tensor are added up one by one, as Python's
  // sum() does. Other chains may be iterations that depend on each other, as
  // those of a solver or a recurrence, unless each pass picks an element and
  // runs a backward pass (`own_passes`). If all passes select `the_same`, they
  // do not pick an element so. Also fills in what the loop does.
  bool IsPerElement(int64_t from_ns, bool own_passes, bool the_same,
                    OpLoop& loop) const {
    int64_t picked = 0, read = 0, attended = 0, multiplied = 0;
    bool unsized = false, several_rows = false;
    for (RowId row : m_.tree.of_thread(m_.steps.thread, loop.forward)) {
      if (m_.tree.in_backward(row)) continue;
      const std::string_view name = m_.trace.name(OpAt(row).name);
      picked += picks_[OpAt(row).name] && !TakesOfEach(row) &&
                !(the_same && IsView(name));
      read += name == "aten::_local_scalar_dense";
      if (name.starts_with("c10d::")) return false;  // ddp-bucket-shape
      const KernelClass kind = m_.tree.traits(row).kind;
      if (!Multiplies(kind)) continue;
      loop.has_products = true;
      if (!m_.tree.computes(row)) continue;
      ++(kind == KernelClass::kAttention ? attended : multiplied);
      if (OpAt(row).inputs == kNone && m_.trace.op_inputs().empty()) {
        unsized = true;
      } else if (kind == KernelClass::kConvolution) {
        const TensorShape input = TensorArgument(m_.trace, row, 0);
        several_rows |= input.dims.empty() || input.dims[0] != 1;
      } else if (!name.ends_with("mv") && !name.ends_with("dot")) {
        several_rows |= CostOf(m_.trace, row).matmul.m != 1;
      }
    }
    loop.attends =
        attended >= loop.passes && multiplied == 0 && !RunsUnknownOps(loop);
    if (loop.attends) return true;
    if (several_rows && !own_passes) return false;
    loop.round_trips = unsized && MakesRoundTrips(loop);
    if (unsized && !loop.round_trips) return false;
    loop.reads_values = read >= loop.passes;
    // The loop begins behind the first pick, which only makes a view.
    return loop.has_products || loop.reads_values ||
           picked + 1 >= loop.passes ||
           (loop.chain == "aten::add" && IteratesOver(from_ns, loop));
  }

  // Returns how long the first wait for the device in `span` waits for work
  // that was launched before `span`. Without the loop, the thread would wait
  // for it elsewhere.
  int64_t EarlierWorkNs(RowId thread, Span span) const {
    const std::vector<HostWait>& waits = m_.waits.all;
    auto wait = std::ranges::lower_bound(
        waits, span.begin_ns, {},
        [](const HostWait& one) { return one.span.begin_ns; });
    while (wait != waits.end() && wait->thread != thread) ++wait;
    if (wait == waits.end() || wait->span.begin_ns >= span.end_ns) return 0;
    // The kernel that runs when the wait begins comes before those that begin
    // during it.
    const auto begin_ns = [&](const KernelUse& use) {
      return m_.trace.kernels()[use.kernel].begin_ns;
    };
    const std::vector<KernelUse>& uses = m_.kernels.uses;
    auto use =
        std::ranges::lower_bound(uses, wait->span.begin_ns, {}, begin_ns);
    if (use != uses.begin()) --use;
    int64_t until_ns = wait->span.begin_ns;
    for (; use != uses.end() && begin_ns(*use) < wait->span.end_ns; ++use) {
      const Kernel& kernel = m_.trace.kernels()[use->kernel];
      if (kernel.call == kNone ||
          m_.trace.runtime_calls()[kernel.call].begin_ns < span.begin_ns) {
        until_ns = std::max(until_ns, kernel.end_ns);
      }
    }
    return std::min(until_ns, wait->span.end_ns) - wait->span.begin_ns;
  }

  // Adds the time of `span` to the loop.
  void Measure(RowId thread, Span span, OpLoop& loop) const {
    const std::span<const RowId> rows = m_.tree.of_thread(thread, span);
    loop.ns += static_cast<double>(span.length() - EarlierWorkNs(thread, span));
    loop.events += static_cast<double>(rows.size());
    // Use the median time of each op, because a thread that waits for its core
    // makes single ops seem long.
    std::map<NameId, std::vector<double>> ops;
    int64_t part_end_ns = 0;
    for (RowId row : rows) {
      // The gradient of a part is as large as the whole tensor and otherwise
      // zero, and the engine adds up those of all passes. One call on the whole
      // tensor needs neither, so this computing is not counted: it disappears
      // with the loop.
      if (IsAnyOf(m_.trace.name(OpAt(row).name),
                  {"aten::select_backward", "aten::slice_backward"})) {
        part_end_ns = OpAt(OutermostOf(m_.trace, row)).end_ns;
      }
      if (!m_.tree.computes(row) || m_.tree.traits(row).bookkeeping ||
          OpAt(row).begin_ns < part_end_ns) {
        continue;
      }
      ops[OpAt(row).name].push_back(
          static_cast<double>(OpAt(row).end_ns - OpAt(row).begin_ns));
    }
    for (auto& [name, times] : ops) {
      const double calls = static_cast<double>(times.size());
      loop.computing_ns +=
          calls * std::max(0.0, Median(std::move(times)) - kCallingNs);
    }
  }

  const AnalysisContext& m_;
  std::vector<Span> known_;
  std::vector<bool> picks_;  // by NameId: the result of Picks()
};

}  // namespace

std::vector<OpLoop> FindOpLoops(const AnalysisContext& context) {
  if (context.steps.thread == kNone) return {};
  return LoopFinder(context).Find();
}

}  // namespace stepscope
