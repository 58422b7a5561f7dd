#include "evidence/program/op_loops.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

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

// The longest chain to search for, in outermost ops.
constexpr size_t kLongestPass = 64;
// Calling an op takes some 5 to 20 us. Only time beyond this is computing.
constexpr double kCallingNs = 20'000;
// The least mean number of passes of a loop that runs backwards in time. Fewer
// may be chance. Our own choice.
constexpr int64_t kLeastScan = 4;

// True for ops that pick an element of a tensor, or make a tensor from a
// number.
bool Picks(std::string_view op) {
  return IsAnyOf(op, {"aten::gather", "aten::index", "aten::index_select",
                      "aten::lift_fresh", "aten::narrow", "aten::select",
                      "aten::slice", "aten::unbind"});
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
      : m_(context), known_(KnownSpans(context)) {}

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
  const Op& OpAt(RowId row) const { return m_.trace.ops()[row]; }

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
    for (size_t period = 1; period <= kLongestPass; ++period) {
      size_t equal = 0;  // ops before `i` that equal those a period earlier
      for (size_t i = period; i <= ops.size(); ++i) {
        if (i < ops.size() && !taken[i] && !taken[i - period] &&
            OpAt(ops[i]).name == OpAt(ops[i - period]).name) {
          ++equal;
          continue;
        }
        const size_t passes = (equal + period) / period;
        if (equal > 0 && static_cast<int64_t>(passes) >= kLeastPasses) {
          const size_t first = i - equal - period;
          const std::span<const RowId> loop =
              ops.subspan(first, passes * period);
          const int64_t from_ns = first > 0
                                      ? OpAt(ops[first - 1]).end_ns
                                      : m_.steps.windows[step].host.begin_ns;
          std::optional<OpLoop> one = Loop(step, from_ns, loop, period);
          if (one) {
            for (RowId row : Iterated(from_ns, one->forward.begin_ns)) {
              Measure(m_.steps.thread, {OpAt(row).begin_ns, OpAt(row).end_ns},
                      *one);
            }
            std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(first),
                        loop.size(), true);
            found.push_back(*std::move(one));
          }
        }
        equal = 0;
      }
    }
  }

  // `from_ns` is where the op before the loop ends, or else the step starts.
  std::optional<OpLoop> Loop(size_t step, int64_t from_ns,
                             std::span<const RowId> ops, size_t period) {
    OpLoop loop{
        .step = step,
        .passes = static_cast<int64_t>(ops.size() / period),
        .forward = {OpAt(ops.front()).begin_ns, OpAt(ops.back()).end_ns}};
    for (RowId row : ops.first(period)) {
      loop.chain += (loop.chain.empty() ? "" : " > ") +
                    std::string(m_.trace.name(OpAt(row).name));
    }
    if (!IsPerElement(from_ns, loop)) return {};
    const std::vector<std::vector<int64_t>> picks = Picked(ops, period);
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
                  !Rises(ops, period, picks) && !IteratesOver(from_ns, loop) &&
                  !TakesAnElement(step, ops.first(period), loop)
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
                                           size_t period) const {
    std::vector<std::vector<int64_t>> picks;
    for (size_t i = 0; i + period < ops.size(); i += period) {
      std::vector<int64_t>& now = picks.emplace_back();
      const Span pass = {OpAt(ops[i]).begin_ns, OpAt(ops[i + period]).begin_ns};
      for (RowId row : PickingIn(pass)) {
        now.push_back(NumberArgument(m_.trace, row, 2).value_or(0));
      }
    }
    return picks;
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
      if (IsAnyOf(m_.trace.name(OpAt(row).name),
                  {"aten::select", "aten::slice"})) {
        rows.push_back(row);
      }
    }
    return rows;
  }

  // True if the index of a layer's input rises from pass to pass. The passes
  // then work on elements and are not layers of one network.
  bool Rises(std::span<const RowId> ops, size_t period,
             const std::vector<std::vector<int64_t>>& picks) const {
    if (picks.empty()) return false;
    const std::vector<RowId> first =
        PickingIn({OpAt(ops[0]).begin_ns, OpAt(ops[period]).begin_ns});
    for (size_t k = 0; k < first.size(); ++k) {
      const bool rises =
          std::ranges::adjacent_find(
              picks, [&](const auto& one, const auto& next) {
                return k >= one.size() || k >= next.size() || next[k] <= one[k];
              }) == picks.end();
      if (!rises) continue;
      const int64_t elements = ElementsIn(DimsOf(m_.trace, first[k], 0));
      for (RowId row : ops.first(period)) {
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
    for (RowId row : m_.tree.of_thread(m_.steps.thread, {from_ns, to_ns})) {
      if (m_.trace.name(OpAt(row).name) == "aten::unbind") found.push_back(row);
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
  // begin behind the first upload, and end before the last wait.
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
    return uploads + 1 >= loop.passes;
  }

  // True if each pass picks an element, reads a value, or multiplies one row or
  // sample, or if the elements of a tensor are added up one by one, as Python's
  // sum() does. Other chains may be iterations that depend on each other, as
  // those of a solver or a recurrence. Also fills in what the loop does.
  bool IsPerElement(int64_t from_ns, OpLoop& loop) const {
    int64_t picked = 0, read = 0;
    bool unsized = false;
    for (RowId row : m_.tree.of_thread(m_.steps.thread, loop.forward)) {
      if (m_.tree.in_backward(row)) continue;
      const std::string_view name = m_.trace.name(OpAt(row).name);
      picked += Picks(name);
      read += name == "aten::_local_scalar_dense";
      if (name.starts_with("c10d::")) return false;  // ddp-bucket-shape
      const KernelClass kind = m_.tree.traits(row).kind;
      if (!Multiplies(kind)) continue;
      loop.has_products = true;
      if (!m_.tree.computes(row)) continue;
      if (OpAt(row).inputs == kNone && m_.trace.op_inputs().empty()) {
        unsized = true;
      } else if (kind == KernelClass::kConvolution) {
        const TensorShape input = TensorArgument(m_.trace, row, 0);
        if (input.dims.empty() || input.dims[0] != 1) return false;
      } else if (!name.ends_with("mv") && !name.ends_with("dot") &&
                 CostOf(m_.trace, row).matmul.m != 1) {
        return false;
      }
    }
    loop.round_trips = unsized && MakesRoundTrips(loop);
    if (unsized && !loop.round_trips) return false;
    loop.reads_values = read >= loop.passes;
    return loop.has_products || loop.reads_values || picked >= loop.passes ||
           (loop.chain == "aten::add" && IteratesOver(from_ns, loop));
  }

  // Adds the time of `span` to the loop.
  void Measure(RowId thread, Span span, OpLoop& loop) const {
    const std::span<const RowId> rows = m_.tree.of_thread(thread, span);
    const double ns = static_cast<double>(span.length());
    loop.ns += ns;
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
};

}  // namespace

std::vector<OpLoop> FindOpLoops(const AnalysisContext& context) {
  if (context.steps.thread == kNone) return {};
  return LoopFinder(context).Find();
}

}  // namespace stepscope
