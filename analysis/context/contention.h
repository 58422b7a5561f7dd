// Contention: the time in which the training thread is ready to run but the
// system gives its core to others. The kernel counts that time (schedstat, "run
// delay"), so the recording has its sum per step, but not when it occurred.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "steps/steps.h"
#include "timeline/causes.h"

namespace stepscope {

// Share of the step from which waits for a core are large. Shorter waits are
// normal on a system that occasionally runs other programs.
inline constexpr double kLargeDelayFrac = 0.05;

struct Contention {
  double delay_ns = -1;  // per steady step; -1: not recorded
  double switches = -1;  // involuntary, per steady step; -1: not recorded
  // Intra-op threads of all ranks of the host, and loader workers; -1: unknown.
  int64_t own_threads = -1;
  int32_t cores = -1;  // usable ones; -1: unknown
  // Cores that all ranks of the host keep busy on average, with all of their
  // threads and loader workers; -1: unknown.
  double busy_cores = -1;
  // The delay is at least kLargeDelayFrac of the step.
  bool is_large = false;
  // The delay is large although there is a core for each of own_threads. If the
  // run leaves enough CPU time for the delay, other programs took the core.
  // Otherwise further threads of the run did.
  bool by_others = false;
  bool by_further_threads = false;
};

// A pure function of the Trace and its steps.
Contention FindContention(const Trace& trace, const Steps& steps);

// For CPU-only runs: in each step, moves the time without a core to
// Cause::kContended. The time is taken in proportion from what the training
// thread was doing, because it may lose its core at any moment; waits for a
// batch or for other ranks are left as they are.
void MoveToContended(const Trace& trace, const Steps& steps,
                     std::vector<CauseTimes>& splits);

}  // namespace stepscope
