// Contention: the training thread is ready to run, and the system gives its
// core to others. The kernel counts that time (schedstat, "run delay") for each
// step, but not when in the step it was.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "steps/steps.h"
#include "timeline/causes.h"

namespace stepscope {

struct Contention {
  double delay_ns = -1;  // per steady step; -1: not recorded
  double switches = -1;  // involuntary ones per steady step; -1: not recorded
  // Intra-op threads of all ranks of the host, and loader workers; -1: unknown.
  int64_t own_threads = -1;
  int32_t cores = -1;  // usable ones; -1: unknown
  // The delay is at least 5 % of the step.
  bool is_large = false;
  // It is large, and our own threads have a core each: others take the cores.
  bool by_others = false;
};

// A pure function of the Trace and its steps.
Contention FindContention(const Trace& trace, const Steps& steps);

// CPU-only runs: in each step, moves the time without a core from what the
// training thread was doing to Cause::kContended, in proportion, because it may
// lose its core at any time. Waits for a batch or for other ranks lose none.
void MoveToContended(const Trace& trace, const Steps& steps,
                     std::vector<CauseTimes>& splits);

}  // namespace stepscope
