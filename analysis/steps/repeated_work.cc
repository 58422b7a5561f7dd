#include "steps/repeated_work.h"

#include <stepscope/kernel_class.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "ops/by_name.h"
#include "ops/contains.h"
#include "ops/host_memory.h"

namespace stepscope {
namespace {

// Thresholds of our own choice.
//
// What occurs fewer than three times shows no rhythm.
constexpr size_t kMinOccurrences = 3;
// Two steps are alike if 80 % of their work is the same: which ops run may
// depend on the data, and some steps log or validate. 80 % of the work must be
// in such steps.
constexpr double kAlike = 0.8;
constexpr double kMinAlikeFrac = 0.8;
// Parts of a step are the steps themselves if nearly everything is in parts
// that are nearly the same.
constexpr double kSamePart = 0.95;
constexpr double kMinSamePartFrac = 0.98;
// The last step is left out if it is shorter than this share of the usual one.
constexpr double kWholeStep = 0.8;
// Share of the work that the steps must contain. The rest is set-up before the
// loop and work after it.
constexpr double kMinWorkFrac = 0.5;
// Share of the steps that must bring something new, or update the parameters.
constexpr double kMinNewsFrac = 0.9;
// Without anything new, the steps must be all that was recorded, repeat it
// exactly, and not be so short that a chain of equal layers is one.
constexpr size_t kMinWorkOfAPass = 8;
// Optimizers that update one parameter at a time call at least this many ops.
// Between two backward passes whose gradients are summed, the program calls
// fewer, for example to add up the loss.
constexpr int64_t kMinUpdates = 4;

// One piece of work: an outermost op, or a launch.
struct Work {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  NameId name = 0;
};

std::vector<Work> OutermostOps(const Trace& trace, RowId thread) {
  std::vector<Work> work;
  for (const Op& op : trace.ops()) {
    if (op.thread != thread || op.parent != kNone) continue;
    work.push_back({op.begin_ns, op.end_ns, op.name});
  }
  return work;
}

// One per call, also if the call launches a whole graph.
std::vector<Work> Launches(const Trace& trace) {
  std::vector<NameId> launched(trace.runtime_calls().size(), 0);
  const auto note = [&](const DeviceWork& activity, NameId name) {
    if (activity.call != kNone) launched[activity.call] = name;
  };
  for (const Kernel& kernel : trace.kernels()) {
    note(kernel, kernel.graph != 0 && kernel.call != kNone
                     ? trace.runtime_calls()[kernel.call].name
                     : kernel.name);
  }
  for (const Copy& copy : trace.copies()) note(copy, copy.name);
  std::vector<Work> work;
  for (RowId row = 0; row < launched.size(); ++row) {
    if (launched[row] == 0) continue;
    const RuntimeCall& call = trace.runtime_calls()[row];
    work.push_back({call.begin_ns, call.end_ns, launched[row]});
  }
  return work;
}

std::vector<Work> KernelsOfBusiestStream(const Trace& trace) {
  std::map<std::pair<int32_t, int64_t>, int64_t> busy_ns;
  for (const Kernel& kernel : trace.kernels()) {
    busy_ns[{kernel.device, kernel.stream}] += kernel.end_ns - kernel.begin_ns;
  }
  if (busy_ns.empty()) return {};
  const auto most = std::ranges::max_element(
      busy_ns, {}, [](const auto& stream) { return stream.second; });
  std::vector<Work> work;
  for (const Kernel& kernel : trace.kernels()) {
    if (std::pair(kernel.device, kernel.stream) != most->first) continue;
    work.push_back({kernel.begin_ns, kernel.end_ns, kernel.name});
  }
  return work;
}

bool WaitsForDevice(std::string_view call) {
  return call.ends_with("DeviceSynchronize");
}

// When backward passes start: where a backward node follows a forward op.
std::vector<int64_t> BackwardTimes(const Trace& trace, RowId thread) {
  std::vector<int64_t> times;
  bool in_backward = false;
  for (const Op& op : trace.ops()) {
    if (op.parent != kNone) continue;
    const bool backward = op.kind == OpKind::kBackward;
    if (!backward && op.thread != thread) continue;
    if (backward && !in_backward) times.push_back(op.begin_ns);
    in_backward = backward;
  }
  return times;
}

// When something new comes or goes. In a recording with backward passes, when
// these start: without one, a loop is a part of a step. Otherwise uploads,
// reads of results, and waits for the whole device. Sorted.
std::vector<int64_t> NewsTimes(const Trace& trace, RowId thread) {
  std::vector<int64_t> times = BackwardTimes(trace, thread);
  if (!times.empty()) return times;
  for (const Copy& copy : trace.copies()) {
    if (!IsHostMemory(copy.source) && !IsHostMemory(copy.destination)) continue;
    times.push_back(copy.call == kNone
                        ? copy.begin_ns
                        : trace.runtime_calls()[copy.call].begin_ns);
  }
  ByName waits(trace, &WaitsForDevice);
  for (const RuntimeCall& call : trace.runtime_calls()) {
    if (waits(call.name)) times.push_back(call.begin_ns);
  }
  std::ranges::sort(times);
  return times;
}

// When the optimizer's updates begin: the first op that updates parameters
// after a gradient was accumulated and before the next forward pass computes.
// Sorted.
std::vector<int64_t> UpdateTimes(const Trace& trace, const OpTree& tree,
                                 RowId thread) {
  std::vector<int64_t> begins;
  bool has_gradients = false, of_lists = false;
  int64_t updates = 0, begin_ns = 0;
  const auto close = [&] {
    if (of_lists || updates >= kMinUpdates) begins.push_back(begin_ns);
    has_gradients = of_lists = false;
    updates = 0;
  };
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    const OpTraits& traits = tree.traits(row);
    if (traits.accumulate_grad) has_gradients = true;
    if (op.thread != thread || tree.in_backward(row)) continue;
    if (traits.matmul) close();
    if (!has_gradients || !traits.update || op.parent != kNone) continue;
    const std::string_view name = trace.name(op.name);
    if (!name.ends_with('_')) continue;
    of_lists |= name.starts_with("aten::_f");  // _foreach_*, _fused_*
    if (updates++ == 0) begin_ns = op.begin_ns;
  }
  close();
  return begins;
}

// The steps as indices into the work: step i is [begins[i], begins[i + 1]).
// What follows the last index may be a whole step or a part of one.
using Begins = std::vector<size_t>;

// How much of the work of two neighbouring steps is the same, 0 to 1, whatever
// its order.
class Likeness {
 public:
  Likeness(const std::vector<Work>& work, size_t names)
      : work_(work), count_(names) {}

  double operator()(size_t begin, size_t middle, size_t end) {
    for (size_t i = begin; i < middle; ++i) ++count_[work_[i].name];
    size_t same = 0;
    for (size_t i = middle; i < end; ++i) {
      if (count_[work_[i].name]-- > 0) ++same;
    }
    for (size_t i = begin; i < end; ++i) count_[work_[i].name] = 0;
    return static_cast<double>(same) /
           static_cast<double>(std::max(middle - begin, end - middle));
  }

 private:
  const std::vector<Work>& work_;
  std::vector<int64_t> count_;  // by name; all 0 between calls
};

class RepeatedWorkFinder {
 public:
  RepeatedWorkFinder(const Trace& trace, const OpTree& tree, RowId thread,
                     std::vector<Work> work)
      : work_(std::move(work)),
        news_(NewsTimes(trace, thread)),
        updates_(UpdateTimes(trace, tree, thread)),
        likeness_(work_, trace.name_count()) {}

  // Where the steps begin; empty if there are none.
  Begins Find() {
    std::map<NameId, Begins> by_name;
    for (size_t i = 0; i < work_.size(); ++i) {
      by_name[work_[i].name].push_back(i);
    }
    std::vector<Begins> rhythms;
    for (auto& [name, begins] : by_name) {
      if (begins.size() >= kMinOccurrences && CoversMost(begins)) {
        rhythms.push_back(std::move(begins));
      }
    }
    if (updates_.size() >= kMinOccurrences) rhythms.push_back(AtUpdates());
    // Of two names that occur once per step, the one that is first in the step.
    std::ranges::sort(rhythms, {}, [](const Begins& begins) {
      return std::pair(begins.size(), begins[0]);
    });
    // What occurs least often marks the whole step. But if it occurs in every
    // tenth step only, as logging does, it marks ten steps at a time. Then
    // something that occurs more often divides the work as well.
    Begins steps;
    for (const Begins& begins : rhythms) {
      if (begins.size() == steps.size()) continue;
      const Begins aligned = Aligned(begins);
      if (!AreSteps(aligned)) continue;
      const bool whole = steps.empty();
      if (FracAlike(aligned, whole ? kAlike : kSamePart) >=
          (whole ? kMinAlikeFrac : kMinSamePartFrac)) {
        steps = aligned;
      }
    }
    return steps;
  }

  // The last index of the step that begins at `begin` if that step is whole and
  // the recording's last; 0 if it is cut.
  size_t EndOfLast(const Begins& begins) {
    const size_t begin = begins.back();
    const size_t usual = begin - begins[begins.size() - 2];
    const size_t end = std::min(begin + usual, work_.size());
    return likeness_(begins[begins.size() - 2], begin, end) >= kAlike ? end : 0;
  }

  const std::vector<Work>& work() const { return work_; }

 private:
  // The first work of each update.
  Begins AtUpdates() const {
    Begins begins;
    for (int64_t time : updates_) {
      const auto at =
          std::ranges::lower_bound(work_, time, {}, &Work::begin_ns);
      begins.push_back(static_cast<size_t>(at - work_.begin()));
    }
    return begins;
  }

  bool CoversMost(const Begins& begins) const {
    const double covered = begins.back() - begins.front();
    // The last step adds about as much as the others.
    return covered * static_cast<double>(begins.size()) >=
           kMinWorkFrac * static_cast<double>(work_.size()) *
               static_cast<double>(begins.size() - 1);
  }

  // Moves the begins back over what precedes all of them, so that the steps
  // begin where the recording's first one does.
  Begins Aligned(const Begins& begins) const {
    size_t most = begins[0];
    for (size_t i = 1; i < begins.size(); ++i) {
      most = std::min(most, begins[i] - begins[i - 1] - 1);
    }
    size_t back = 0;
    const auto same = [&](size_t by) {
      const NameId name = work_[begins[0] - by].name;
      return std::ranges::all_of(
          begins, [&](size_t i) { return work_[i - by].name == name; });
    };
    while (back < most && same(back + 1)) ++back;
    Begins aligned = begins;
    for (size_t& begin : aligned) begin -= back;
    return aligned;
  }

  // True if nearly each step updates the parameters once. In a recording
  // without updates, if nearly each brings something new.
  bool AreSteps(const Begins& begins) const {
    if (updates_.size() + 1 >= kMinOccurrences) {
      return FracWith(begins, updates_, [](int64_t n) { return n == 1; }) >=
             kMinNewsFrac;
    }
    return FracWith(begins, news_, [](int64_t n) { return n > 0; }) >=
               kMinNewsFrac ||
           AreAll(begins);
  }

  // The share of the steps with so many of `times`, which are sorted.
  template <typename Enough>
  double FracWith(const Begins& begins, const std::vector<int64_t>& times,
                  Enough enough) const {
    size_t with = 0;
    auto from = std::ranges::lower_bound(times, work_[begins[0]].begin_ns);
    for (size_t i = 1; i < begins.size(); ++i) {
      const auto to = std::ranges::lower_bound(from, times.end(),
                                               work_[begins[i]].begin_ns);
      with += enough(to - from);
      from = to;
    }
    return static_cast<double>(with) / static_cast<double>(begins.size() - 1);
  }

  // The share of the work that is in steps like the one before or after.
  double FracAlike(const Begins& begins, double alike) {
    std::vector<bool> is_alike(begins.size() - 1);
    for (size_t i = 2; i < begins.size(); ++i) {
      if (likeness_(begins[i - 2], begins[i - 1], begins[i]) >= alike) {
        is_alike[i - 2] = is_alike[i - 1] = true;
      }
    }
    size_t in_alike = 0;
    for (size_t i = 0; i < is_alike.size(); ++i) {
      if (is_alike[i]) in_alike += begins[i + 1] - begins[i];
    }
    return static_cast<double>(in_alike) /
           static_cast<double>(begins.back() - begins.front());
  }

  // True if the recording has nothing but the same work, time after time.
  bool AreAll(const Begins& begins) const {
    const size_t length = begins[1] - begins[0];
    if (begins[0] != 0 || length < kMinWorkOfAPass ||
        work_.size() != length * begins.size()) {
      return false;
    }
    for (size_t i = length; i < work_.size(); ++i) {
      if (work_[i].name != work_[i - length].name) return false;
    }
    return true;
  }

  std::vector<Work> work_;
  std::vector<int64_t> news_;
  std::vector<int64_t> updates_;
  Likeness likeness_;
};

// When the last recorded work that belongs to the steps ends.
int64_t EndOfWork(const Trace& trace, RowId thread, int64_t end_ns) {
  for (const Op& op : trace.ops()) {
    if (op.thread == thread || op.kind == OpKind::kBackward) {
      end_ns = std::max(end_ns, op.end_ns);
    }
  }
  return end_ns;
}

}  // namespace

RepeatedWork FindRepeatedWork(const Trace& trace, const OpTree& tree,
                              RowId thread) {
  const bool has_ops = !trace.ops().empty();
  std::vector<Work> work;
  if (has_ops) {
    work = OutermostOps(trace, thread);
  } else {
    work = Launches(trace);
    if (work.empty()) work = KernelsOfBusiestStream(trace);
  }
  std::ranges::stable_sort(work, {}, &Work::begin_ns);
  RepeatedWorkFinder finder(trace, tree, thread, std::move(work));
  const Begins begins = finder.Find();
  RepeatedWork found;
  if (begins.empty()) return found;
  const std::vector<Work>& rows = finder.work();
  const auto add = [&](int64_t begin_ns, int64_t end_ns) {
    found.windows.push_back(
        {.host = {begin_ns, end_ns},
         .number = static_cast<int64_t>(found.windows.size())});
  };
  for (size_t i = 1; i < begins.size(); ++i) {
    add(rows[begins[i - 1]].begin_ns, rows[begins[i]].begin_ns);
  }
  // The last step has no next one to end at. Where the recording ends with it,
  // what usually follows, such as getting the next batch, may be missing.
  if (const size_t end = finder.EndOfLast(begins); end != 0) {
    const Span last{rows[begins.back()].begin_ns,
                    end < rows.size()
                        ? rows[end].begin_ns
                        : EndOfWork(trace, thread, rows.back().end_ns)};
    std::vector<double> lengths;
    for (const StepWindow& window : found.windows) {
      lengths.push_back(static_cast<double>(window.host.length()));
    }
    if (last.length() >= kWholeStep * Median(lengths)) {
      add(last.begin_ns, last.end_ns);
    }
  }
  const std::string_view first = trace.name(rows[begins[0]].name);
  found.first = has_ops ? "the op \"" + std::string(first) + "\""
                        : "the kernel \"" + FunctionOfKernel(first) + "\"";
  return found;
}

}  // namespace stepscope
