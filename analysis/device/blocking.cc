#include "device/blocking.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ops/by_name.h"
#include "ops/contains.h"
#include "ops/host_memory.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// Issuing an asynchronous copy takes less than 10 us. A longer call waited, or
// copied, before it returned.
constexpr int64_t kLongCallNs = 10'000;
// Host and device timestamps are taken to agree within 2 us.
constexpr int64_t kClockNs = 2'000;

// What a runtime or driver call is for. kDrain waits for the whole device.
enum class CallRole : uint8_t { kOther, kCopy, kBlockingCopy, kSync, kDrain };

CallRole RoleOf(std::string_view name) {
  if (Contains(name, "Synchronize")) {
    return Contains(name, "Device") || Contains(name, "Ctx") ||
                   Contains(name, "Context")
               ? CallRole::kDrain
               : CallRole::kSync;
  }
  if (!Contains(name, "Memcpy")) return CallRole::kOther;
  return Contains(name, "Async") ? CallRole::kCopy : CallRole::kBlockingCopy;
}

WaitKind DirectionOf(const Copy& copy) {
  if (IsHostMemory(copy.destination)) return WaitKind::kToHost;
  if (IsHostMemory(copy.source)) return WaitKind::kToDevice;
  return WaitKind::kOnDevice;
}

// Turns the runtime calls of the training thread and the autograd threads into
// waits, in one pass over the calls.
class WaitFinder {
 public:
  // `idle`: when the device does nothing; sorted and disjoint.
  WaitFinder(const Trace& trace, const OpTree& tree, const Steps& steps,
             std::vector<Span> idle)
      : trace_(trace),
        steps_(steps),
        idle_(std::move(idle)),
        watched_(trace.threads().size()),
        last_(trace.threads().size()),
        role_of_(trace, &RoleOf),
        copy_of_(trace.runtime_calls().size(), kNone) {
    if (steps.thread != kNone) watched_[steps.thread] = true;
    for (RowId row : AutogradThreads(tree, steps.thread)) {
      watched_[row] = true;
    }
    for (RowId row = 0; row < trace.copies().size(); ++row) {
      const RowId call = trace.copies()[row].call;
      if (call != kNone) copy_of_[call] = row;
    }
    steady_.resize(steps.windows.size());
    for (size_t i : steps.steady) steady_[i] = true;
  }

  std::vector<HostWait> Find() {
    const std::span<const RuntimeCall> calls = trace_.runtime_calls();
    for (RowId row = 0; row < calls.size(); ++row) {
      const RuntimeCall& call = calls[row];
      if (call.thread >= watched_.size() || !watched_[call.thread]) continue;
      Last& last = last_[call.thread];
      // Skips a driver call inside a runtime call: the runtime implements its
      // calls by driver calls.
      if (last.call != kNone && call.end_ns <= calls[last.call].end_ns) {
        continue;
      }
      Take(row, last);
      last.call = row;
    }
    MarkLast();
    return std::move(waits_);
  }

 private:
  // The last calls of a thread, to pair a copy with its synchronisation.
  struct Last {
    RowId call = kNone;
    RowId copy_call = kNone;
    size_t wait = SIZE_MAX;  // the wait of copy_call, in waits_
  };

  void Take(RowId row, Last& last) {
    const RuntimeCall& call = trace_.runtime_calls()[row];
    const CallRole role = role_of_(call.name);
    if (role == CallRole::kOther || IsOfAllocator(row, role, last)) return;
    if (role == CallRole::kCopy || role == CallRole::kBlockingCopy) {
      last.copy_call = row;
      last.wait = SIZE_MAX;
      if (Blocks(row, role)) last.wait = Add(row, kNone, row);
      return;
    }
    if (IsPair(row, last)) {
      if (last.wait != SIZE_MAX) {
        HostWait& wait = waits_[last.wait];
        wait.sync_call = row;
        wait.span.end_ns = call.end_ns;
        wait.blocked_ns += call.end_ns - call.begin_ns;
        SetQueued(wait);
      } else {
        Add(last.copy_call, row, row);
      }
      last.copy_call = kNone;
      return;
    }
    Add(kNone, row, row);
  }

  // True if the caching allocator waits for the device. It does so after a
  // failed allocation, before it frees what it holds; this is not a wait for a
  // result.
  bool IsOfAllocator(RowId row, CallRole role, const Last& last) const {
    if (role != CallRole::kDrain || last.call == kNone) return false;
    const RuntimeCall& call = trace_.runtime_calls()[row];
    const RuntimeCall& before = trace_.runtime_calls()[last.call];
    return call.op != kNone && call.op == before.op &&
           Contains(trace_.name(before.name), "Malloc");
  }

  // True if the synchronisation waits for the last copy: both are in one op, or
  // follow each other directly outside of ops.
  bool IsPair(RowId row, const Last& last) const {
    if (last.copy_call == kNone) return false;
    const RuntimeCall& sync = trace_.runtime_calls()[row];
    const RuntimeCall& copy = trace_.runtime_calls()[last.copy_call];
    return copy.op == sync.op &&
           (sync.op != kNone || last.call == last.copy_call);
  }

  // True if the copy call itself waits until the copy is done or nearly done.
  bool Blocks(RowId row, CallRole role) const {
    if (role == CallRole::kBlockingCopy) return true;
    if (copy_of_[row] == kNone) return false;
    const Copy& copy = trace_.copies()[copy_of_[row]];
    if (copy.destination == MemoryKind::kPageable) return true;
    const RuntimeCall& call = trace_.runtime_calls()[row];
    if (DirectionOf(copy) == WaitKind::kOnDevice ||
        call.end_ns - call.begin_ns <= kLongCallNs) {
      return false;
    }
    // A large copy from pageable memory is staged in parts, and the call
    // returns before the last part arrives. So half of the copy is enough
    // evidence.
    const int64_t until = copy.source == MemoryKind::kPageable
                              ? (copy.begin_ns + copy.end_ns) / 2
                              : copy.end_ns - kClockNs;
    return call.end_ns >= until;
  }

  // Adds a wait and returns its index; SIZE_MAX outside the steps. Either of
  // `copy_call` and `sync_call` may be kNone.
  size_t Add(RowId copy_call, RowId sync_call, RowId last_call) {
    const RuntimeCall& first =
        trace_.runtime_calls()[copy_call != kNone ? copy_call : sync_call];
    const RuntimeCall& end = trace_.runtime_calls()[last_call];
    const size_t step = StepAt(first.begin_ns);
    if (step == SIZE_MAX) return SIZE_MAX;
    HostWait wait{.span = {first.begin_ns, end.end_ns},
                  .copy_call = copy_call,
                  .sync_call = sync_call,
                  .op = first.op,
                  .thread = first.thread,
                  .step = step,
                  .steady = steady_[step]};
    if (copy_call != kNone) wait.copy = copy_of_[copy_call];
    for (RowId row : {copy_call, sync_call}) {
      if (row == kNone) continue;
      const RuntimeCall& call = trace_.runtime_calls()[row];
      wait.blocked_ns += call.end_ns - call.begin_ns;
    }
    if (wait.copy != kNone) {
      wait.kind = DirectionOf(trace_.copies()[wait.copy]);
    } else if (wait.op != kNone && InsideTorchOp(wait.op)) {
      wait.kind = WaitKind::kInOp;
    }
    SetQueued(wait);
    waits_.push_back(wait);
    return waits_.size() - 1;
  }

  void SetQueued(HostWait& wait) const {
    wait.queued_ns = wait.blocked_ns;
    if (wait.copy == kNone) return;
    const Span before{wait.span.begin_ns, trace_.copies()[wait.copy].begin_ns};
    // While the device is idle, the copy waits for nothing: the driver copies
    // to its own buffer, or starts the copy.
    wait.queued_ns = before.length() <= 0
                         ? 0
                         : std::min(before.length() - LengthIn(idle_, before),
                                    wait.blocked_ns);
  }

  // True for ops of PyTorch itself. False for collectives such as barriers,
  // because the program asked for them.
  bool InsideTorchOp(RowId op) const {
    const std::string_view name = trace_.name(trace_.ops()[op].name);
    return !name.starts_with("c10d::") && !name.starts_with("nccl:");
  }

  size_t StepAt(int64_t time_ns) const {
    const auto after = std::ranges::upper_bound(
        steps_.windows, time_ns, {},
        [](const StepWindow& step) { return step.host.begin_ns; });
    if (after == steps_.windows.begin()) return SIZE_MAX;
    const size_t step = static_cast<size_t>(after - steps_.windows.begin()) - 1;
    return time_ns < steps_.windows[step].host.end_ns ? step : SIZE_MAX;
  }

  // Sets is_last. Checks more than one wait, because profilers synchronise the
  // device when they stop; torch.profiler does so twice, once itself and once
  // in Kineto.
  void MarkLast() {
    int64_t last_launch = INT64_MIN;
    const auto note = [&](const auto& rows) {
      for (const DeviceWork& work : rows) {
        if (work.call == kNone) continue;
        last_launch =
            std::max(last_launch, trace_.runtime_calls()[work.call].begin_ns);
      }
    };
    note(trace_.kernels());
    note(trace_.copies());
    note(trace_.memsets());
    for (auto wait = waits_.rbegin(); wait != waits_.rend(); ++wait) {
      if (wait->sync_call == kNone || wait->copy_call != kNone ||
          role_of_(trace_.runtime_calls()[wait->sync_call].name) !=
              CallRole::kDrain ||
          wait->span.end_ns <= last_launch) {
        return;
      }
      wait->is_last = true;
    }
  }

  const Trace& trace_;
  const Steps& steps_;
  const std::vector<Span> idle_;
  std::vector<bool> watched_;  // by thread
  std::vector<Last> last_;     // by thread
  ByName<CallRole> role_of_;
  std::vector<RowId> copy_of_;  // by runtime call
  std::vector<bool> steady_;    // by step
  std::vector<HostWait> waits_;
};

double Largest(const std::vector<double>& values) {
  return *std::ranges::max_element(values);
}

// Attributes gaps in which the host was late to the time that the host lost in
// earlier waits. A host that loses time in a wait launches late until it has
// caught up, so a wait may cause gaps much later. Each nanosecond lost explains
// at most one nanosecond of a gap.
class LateGaps {
 public:
  LateGaps(const std::vector<Gap>& gaps, const std::vector<Span>& steady)
      : gaps_(gaps), steady_(steady) {}

  // Called for the waits in time order.
  void Add(const HostWait& wait, int64_t lost_ns) {
    // A gap that contains the end of the wait is explained by the wait.
    PassUntil(wait.span.end_ns);
    lost_ns_ += lost_ns;
    last_end_ns_ = wait.span.end_ns;
  }
  void Finish() { PassUntil(INT64_MAX); }

  // The time of the explained gaps, and the part of it in gaps that start
  // before the latest wait ends.
  double total_ns() const { return total_ns_; }
  double behind_ns() const { return behind_ns_; }

 private:
  void PassUntil(int64_t time_ns) {
    for (; next_ < gaps_.size() && gaps_[next_].idle.end_ns <= time_ns;
         ++next_) {
      const Gap& gap = gaps_[next_];
      if (!gap.host_late) continue;
      const int64_t share = std::min(lost_ns_, gap.idle.length());
      lost_ns_ -= share;
      if (LengthIn(steady_, gap.idle) == 0) continue;
      total_ns_ += static_cast<double>(share);
      if (gap.idle.begin_ns <= last_end_ns_) {
        behind_ns_ += static_cast<double>(share);
      }
    }
  }

  const std::vector<Gap>& gaps_;
  const std::vector<Span>& steady_;
  size_t next_ = 0;
  int64_t lost_ns_ = 0;              // lost in waits, not yet used up by gaps
  int64_t last_end_ns_ = INT64_MIN;  // of the latest wait
  double total_ns_ = 0, behind_ns_ = 0;
};

}  // namespace

Waits FindWaits(const Trace& trace, const OpTree& tree, const Steps& steps,
                int32_t device, bool collectives) {
  Waits waits;
  waits.idle = FindGaps(trace, device, true);
  waits.no_compute = collectives ? FindGaps(trace, device, false) : waits.idle;
  waits.all =
      WaitFinder(trace, tree, steps, Merge(IdleSpans(waits.idle))).Find();
  return waits;
}

WaitSums SumWaits(const Waits& waits, const Steps& steps,
                  const WaitFilter& filter) {
  WaitSums sums;
  if (steps.steady.empty()) return sums;
  std::vector<Span> steady;
  for (size_t i : steps.steady) steady.push_back(steps.windows[i].tiled);
  steady = Merge(std::move(steady));

  std::vector<double> blocked_by_step(steps.windows.size());
  std::vector<double> queued_by_step(steps.windows.size());
  LateGaps bubbles(waits.idle, steady), bound(waits.no_compute, steady);
  for (const HostWait& wait : waits.all) {
    if (!filter(wait)) continue;
    bubbles.Add(wait, wait.blocked_ns);
    bound.Add(wait, wait.queued_ns);
    if (!wait.steady) continue;
    sums.blocked_ns += static_cast<double>(wait.blocked_ns);
    sums.queued_ns += static_cast<double>(wait.queued_ns);
    blocked_by_step[wait.step] += static_cast<double>(wait.blocked_ns);
    queued_by_step[wait.step] += static_cast<double>(wait.queued_ns);
    ++sums.count;
  }
  bubbles.Finish();
  bound.Finish();
  const auto n = static_cast<double>(steps.steady.size());
  sums.blocked_ns /= n;
  sums.queued_ns /= n;
  sums.count /= n;
  sums.bubble_ns = bubbles.behind_ns() / n;
  sums.once_blocked_frac = Largest(blocked_by_step) / (n * sums.blocked_ns);
  sums.once_queued_frac = Largest(queued_by_step) / (n * sums.queued_ns);
  sums.bound_ns = std::min(
      bound.total_ns() / n + sums.blocked_ns - sums.queued_ns, sums.blocked_ns);
  return sums;
}

bool Recurs(double once_frac, const Steps& steps) {
  // Our own choice. Two steps do not suffice, because one of them always has at
  // least half.
  constexpr size_t kMinSteps = 3;
  constexpr double kOnce = 0.8;
  return steps.steady.size() < kMinSteps || once_frac <= kOnce;
}

Edit WithoutWaits(const Waits& waits, const WaitFilter& filter) {
  Edit edit;
  for (const HostWait& wait : waits.all) {
    if (!filter(wait)) continue;
    for (RowId call : {wait.copy_call, wait.sync_call}) {
      if (call != kNone) edit.no_wait.push_back(call);
    }
  }
  std::ranges::sort(edit.no_wait);
  return edit;
}

}  // namespace stepscope
