#include "evidence/gradients/cleared_gradients.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
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
      const Between between =
          Behind(EndOf(pass), i + 1 < passes.size()
                                  ? BeginOf(passes[i + 1])
                                  : std::numeric_limits<int64_t>::max());
      now.read = between.read;
      for (const auto& [dims, count] : now.read) pending_.erase(dims);
      for (const auto& [dims, count] : between.zeroed) Zero(dims, count);
    }
    // What is cleared after the recording's last step was not recorded. Assume
    // that it is cleared as in earlier steps.
    for (auto& [dims, pending] : pending_) {
      if (cleared_at_[{dims, pending.place}] >= kLeastClears) {
        MarkAll(pending.kept);
      }
    }
    for (std::vector<PassKept>& step : steps) {
      MarkShared(step);
      for (PassKept& pass : step) MarkByPlace(pass);
    }
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

  // What happens to gradients between two passes, by size.
  struct Between {
    std::map<Dims, double> read = {};    // how many are read
    std::map<Dims, double> zeroed = {};  // how many tensors are set to zero
  };

  // An op may read gradients of the sizes that it takes, with two exceptions.
  // Once the next forward pass has started, only updates count, because layers
  // take their parameters, which have the same sizes. Once an optimizer has
  // stepped, only optimizers count, because later ops take parameters, for
  // example for a moving average.
  Between Behind(int64_t begin_ns, int64_t end_ns) {
    Between found;
    // For ops that take one tensor per call: the calls of each, by optimizers
    // and by others.
    std::map<NameId, std::map<Dims, double>> updating, reading;
    const auto& ops = m_.trace.ops();
    bool forward = false;
    auto op = std::ranges::lower_bound(ops, begin_ns, {}, &Op::begin_ns);
    auto step =
        std::ranges::lower_bound(updates_.steps, begin_ns, {}, &Span::begin_ns);
    const auto first_step = step;
    for (; op != ops.end() && op->begin_ns < end_ns; ++op) {
      const RowId row = static_cast<RowId>(op - ops.begin());
      const OpTraits& traits = m_.tree.traits(row);
      if (m_.tree.in_backward(row)) continue;
      if (traits.zeroing) {
        if (op->inputs == kNone ||
            (op->parent != kNone && m_.tree.traits(op->parent).zeroing)) {
          continue;
        }
        for (const auto& [dims, count] : sizes_of_.Of(op->inputs)) {
          found.zeroed[dims] += count;
        }
        continue;
      }
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
        double& read = found.read[dims];
        read = std::max(read, count);
        if (!list) (steps ? updating : reading)[op->name][dims] += count;
      }
    }
    for (const auto& [name, sizes] : reading) {
      for (const auto& [dims, count] : sizes) {
        found.read[dims] = std::max(found.read[dims], count);
      }
    }
    // An optimizer may call an op several times per tensor, so take the least
    // frequent one. Weight decay, which adds out of place, may leave some
    // tensors out.
    std::map<Dims, double> least;
    for (const auto& [name, sizes] : updating) {
      if (!m_.trace.name(name).ends_with('_')) continue;
      for (const auto& [dims, count] : sizes) {
        double& calls = least.try_emplace(dims, count).first->second;
        calls = std::min(calls, count);
      }
    }
    for (const auto& [dims, count] : least) {
      found.read[dims] = std::max(found.read[dims], count);
    }
    return found;
  }

  // Notes that `count` tensors of one size were set to zero.
  void Zero(const Dims& dims, double count) {
    const auto pending = pending_.find(dims);
    if (pending == pending_.end() || pending->second.kept.empty() ||
        count < CountOfSize(updates_.stepped, dims)) {
      return;
    }
    ++cleared_at_[{dims, pending->second.place}];
    MarkAll(pending->second.kept);
    pending->second.kept.clear();
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

  // The same for sizes that several networks have, by place: backward goes
  // through one network after the other. If all cleared gradients of sizes that
  // only one network has come before all read ones, or after, the others are
  // divided at the place that leaves as many as are read.
  void MarkByPlace(PassKept& pass) const {
    std::vector<std::pair<StoredGradient*, const Dims*>> order;
    std::set<const StoredGradient*> cleared, read;
    for (const auto& [dims, kept] : pass.by_size) {
      for (StoredGradient* one : kept) order.emplace_back(one, &dims);
      if (!HasAll(dims, kept)) continue;
      if (std::ranges::all_of(kept, &StoredGradient::cleared)) {
        cleared.insert(kept.begin(), kept.end());
      } else if (CountOfSize(pass.read, dims) ==
                     static_cast<double>(kept.size()) &&
                 std::ranges::none_of(kept, &StoredGradient::cleared)) {
        read.insert(kept.begin(), kept.end());
      }
    }
    if (cleared.empty() || read.empty()) return;
    std::ranges::sort(order, {},
                      [](const auto& one) { return one.first->row; });
    // [first, last] of each group.
    const auto places = [&](const std::set<const StoredGradient*>& group) {
      std::pair<size_t, size_t> found{order.size(), 0};
      for (size_t i = 0; i < order.size(); ++i) {
        if (!group.contains(order[i].first)) continue;
        found.first = std::min(found.first, i);
        found.second = i;
      }
      return found;
    };
    const auto [cleared_first, cleared_last] = places(cleared);
    const auto [read_first, read_last] = places(read);
    const bool starts_cleared = cleared_last < read_first;
    if (!starts_cleared && read_last > cleared_first) return;
    const size_t from = starts_cleared ? cleared_last : read_last;
    const size_t to = starts_cleared ? read_first : cleared_first;
    for (size_t split = from + 1; split <= to; ++split) {
      if (!LeavesWhatIsRead(pass, order, split, starts_cleared)) continue;
      for (size_t i = 0; i < order.size(); ++i) {
        StoredGradient* one = order[i].first;
        const bool is_cleared = (i < split) == starts_cleared;
        if (!order[i].second->empty()) one->unread = one->cleared = is_cleared;
      }
      return;
    }
  }

  // True if, on the read side of `split`, there are as many gradients of each
  // size as are read after the pass.
  static bool LeavesWhatIsRead(
      const PassKept& pass,
      const std::vector<std::pair<StoredGradient*, const Dims*>>& order,
      size_t split, bool starts_cleared) {
    std::map<Dims, double> left;
    for (size_t i = 0; i < order.size(); ++i) {
      if ((i < split) != starts_cleared) ++left[*order[i].second];
    }
    return std::ranges::all_of(pass.by_size, [&](const auto& size) {
      return size.first.empty() || CountOfSize(left, size.first) ==
                                       CountOfSize(pass.read, size.first);
    });
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
