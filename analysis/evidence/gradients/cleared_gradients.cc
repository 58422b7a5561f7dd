#include "evidence/gradients/cleared_gradients.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "ops/backward_nodes.h"

namespace stepscope {
namespace {

// How often a pass must be seen to clear gradients: what happened once may not
// be the program's habit.
constexpr size_t kLeastClears = 3;

class ClearedFinder {
 public:
  ClearedFinder(const AnalysisContext& context, const ParameterUpdates& updates)
      : m_(context), updates_(updates) {}

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
      if (cleared_at_[{dims, pending.place}] >= kLeastClears) {
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
    std::vector<StoredGradient*> kept = {};
    size_t place = 0;
  };

  int64_t BeginOf(const BackwardPass& pass) const {
    return m_.trace.ops()[pass.nodes.front().row].begin_ns;
  }
  int64_t EndOf(const BackwardPass& pass) const {
    const PassNode& last = pass.nodes.back();
    int64_t end_ns = m_.trace.ops()[last.row].end_ns;
    for (const StoredGradient& one : last.kept) {
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
      const bool reads = steps || (updates_.steps.empty()
                                       ? !forward || MayUpdateParameter(m_, row)
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
  bool HasAll(const Dims& dims,
              const std::vector<StoredGradient*>& kept) const {
    return !dims.empty() && static_cast<double>(kept.size()) ==
                                CountOfSize(updates_.stepped, dims);
  }

  // What `place`, a pass within its step, does with all gradients of a size.
  void Take(const Dims& dims, const std::vector<StoredGradient*>& kept,
            size_t place) {
    if (!HasAll(dims, kept)) {
      pending_.erase(dims);
      return;
    }
    Pending& pending = pending_[dims];
    if (std::ranges::none_of(kept, &StoredGradient::adds)) {
      if (!pending.kept.empty()) {
        ++cleared_at_[{dims, pending.place}];
        MarkAll(pending.kept);
      }
      pending.kept.clear();
    } else if (!std::ranges::all_of(kept, &StoredGradient::adds)) {
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
        const double here = CountOfSize(pass.read, dims);
        const auto kept = pass.by_size.find(dims);
        const auto made = kept == pass.by_size.end()
                              ? 0
                              : std::ranges::count(kept->second, false,
                                                   &StoredGradient::adds);
        explained &= here <= static_cast<double>(made);
        read += here;
      }
      if (!explained || read != parameters) continue;
      for (PassKept& pass : step) {
        const auto kept = pass.by_size.find(dims);
        if (kept == pass.by_size.end()) continue;
        MarkBut(CountOfSize(pass.read, dims), pass, kept->second);
      }
    }
  }

  // Marks `kept` but for the first `read` that are made anew.
  void MarkBut(double read, const PassKept& pass,
               const std::vector<StoredGradient*>& kept) const {
    for (StoredGradient* one : kept) {
      if (!one->adds && read-- > 0) continue;
      if (SaysSo(pass, one->adds)) MarkAll({one});
    }
  }

  // True if gradients of a size that only one network has are cleared.
  bool SaysSo(const PassKept& pass, bool adds) const {
    return std::ranges::any_of(pass.by_size, [&](const auto& size) {
      return HasAll(size.first, size.second) &&
             std::ranges::all_of(size.second, [&](const StoredGradient* one) {
               return one->cleared && one->adds == adds;
             });
    });
  }

  static void MarkAll(const std::vector<StoredGradient*>& kept) {
    for (StoredGradient* one : kept) one->unread = one->cleared = true;
  }

  const AnalysisContext& m_;
  const ParameterUpdates& updates_;
  std::map<Dims, Pending> pending_;
  std::map<std::pair<Dims, size_t>, size_t> cleared_at_;
};

}  // namespace

void MarkCleared(const AnalysisContext& context,
                 const ParameterUpdates& updates,
                 std::vector<BackwardPass>& passes) {
  ClearedFinder(context, updates).Mark(passes);
}

}  // namespace stepscope
