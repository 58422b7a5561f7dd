#include "evidence/gradients/cleared_gradients.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "ops/backward_nodes.h"

namespace stepscope {
namespace {

// How often a pass must be seen to clear gradients. Once may be an exception.
constexpr size_t kLeastClears = 3;

class ClearedFinder {
 public:
  ClearedFinder(const AnalysisContext& context, const ParameterUpdates& updates)
      : m_(context), updates_(updates), sizes_of_(context.trace) {}

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
    // What is cleared after the recording's last step was not recorded. Assume
    // that it is cleared as in earlier steps.
    for (auto& [dims, pending] : pending_) {
      if (cleared_at_[{dims, pending.place}] >= kLeastClears) {
        MarkAll(pending.kept);
      }
    }
    for (std::vector<PassKept>& step : steps) MarkShared(step);
  }

 private:
  // One pass. by_size: its gradients. read: for each size, how many of them are
  // read before the next pass, which is the most that any op takes.
  struct PassKept {
    KeptBySize by_size = {};
    std::map<Dims, double> read = {};
  };
  // The gradients of a size that were stored since the size was last read or
  // cleared. `place`: the latest pass among them.
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

  // Returns how many gradients of each size are read in a time between passes.
  // An op may read gradients of the sizes that it takes, with two exceptions.
  // Once the next forward pass has started, only updates count, because layers
  // take their parameters, which have the same sizes. Once an optimizer has
  // stepped, only optimizers count, because later ops take parameters, for
  // example for a moving average.
  std::map<Dims, double> ReadIn(int64_t begin_ns, int64_t end_ns) {
    std::map<Dims, double> read;
    // For optimizers that update one tensor per call: the calls of each op.
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
      for (const auto& [dims, count] : sizes_of_.Of(op->inputs)) {
        double& single = one_by_one[op->name][dims];
        if (!list) single += count;
        read[dims] = std::max({read[dims], count, single});
      }
    }
    return read;
  }

  // True if `kept` are the gradients of all parameters of the size, which
  // several networks may share. False for scalars, whose size says nothing.
  bool HasAll(const Dims& dims,
              const std::vector<StoredGradient*>& kept) const {
    return !dims.empty() && static_cast<double>(kept.size()) ==
                                CountOfSize(updates_.stepped, dims);
  }

  // Adds the gradients of one size that a pass stored. `place` is the index of
  // the pass within its step.
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

  // Marks cleared gradients of sizes that several networks have, such as the
  // hidden layers of an actor and its critic. Applies if the step reads exactly
  // one gradient per parameter of the size, and after each pass no more than
  // that pass made anew. Then gradients that a pass added to are unread, and so
  // are those made anew beyond the number read. The first gradients count as
  // read, because backward reaches last the network that another network's loss
  // goes through. Sizes that only one network has must show the same
  // (SaysSo()), because otherwise an optimizer could read the other gradients
  // instead.
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

  // Marks `kept`, except for the first `read` gradients that were made anew.
  void MarkBut(double read, const PassKept& pass,
               const std::vector<StoredGradient*>& kept) const {
    for (StoredGradient* one : kept) {
      if (!one->adds && read-- > 0) continue;
      if (SaysSo(pass, one->adds)) MarkAll({one});
    }
  }

  // True if the pass also has cleared gradients of a size that only one network
  // has, which it likewise added to (`adds`) or made anew.
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
  SizeCounts sizes_of_;
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
