// Waits: where the training thread, or the autograd threads that work for it,
// stood still for the GPU, and what that left the GPU without.
//
// Where the wait of a blocking copy is recorded depends on its direction, kind
// of memory and version: inside the copy call, or in the synchronisation that
// follows it in the same op. So a copy call and that synchronisation are one
// wait (rules.md, section 1).
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/gaps.h"
#include "edit/edit.h"
#include "ops/intervals.h"
#include "steps/steps.h"

namespace stepscope {

enum class WaitKind : uint8_t {
  kToHost,    // a copy from the device: the result of a computation
  kToDevice,  // a copy to the device
  kOnDevice,  // a copy within the device
  kInOp,      // a synchronisation inside an op, without a copy
  kExplicit,  // a synchronisation the program asked for
};

struct HostWait {
  Span span;  // from the begin of the first call to the end of the last
  int64_t blocked_ns = 0;  // inside its calls
  int64_t queued_ns = 0;   // of which before its copy began: waiting for what
                           // was launched earlier. All of it without a copy.
  RowId copy_call = kNone;
  RowId sync_call = kNone;
  RowId copy = kNone;  // in copies()
  RowId op = kNone;    // the innermost op
  RowId thread = kNone;
  size_t step = 0;  // in Steps::windows
  WaitKind kind = WaitKind::kExplicit;
  bool steady = false;  // in a steady step
  // A wait for the whole device after which nothing was launched any more: the
  // end of a recording.
  bool is_last = false;
};

using WaitFilter = std::function<bool(const HostWait&)>;

struct Waits {
  std::vector<HostWait> all;    // in time order; only those inside steps
  std::vector<Gap> idle;        // the device has no work, in time order
  std::vector<Gap> no_compute;  // or none but collectives
};

Waits FindWaits(const Trace& trace, const Steps& steps, int32_t device);

// Means per steady step over the waits that pass the filter.
struct WaitSums {
  double blocked_ns = 0;
  double queued_ns = 0;
  double count = 0;
  // The share of the one step that has most of it; not a number if there is
  // none.
  double once_blocked_frac = 0;
  double once_queued_frac = 0;
  // Device idle right behind them.
  double bubble_ns = 0;
  // What removing them can win at most: their own transfers, and the device
  // idle with a late host, as far as the time lost in waiting goes.
  double bound_ns = 0;
};
WaitSums SumWaits(const Waits& waits, const Steps& steps,
                  const WaitFilter& filter);

// False for what happened in one of several steps only: the queue that warm-up
// left behind, a checkpoint.
bool Recurs(double once_frac, const Steps& steps);

// The runtime calls of these waits.
Edit WithoutWaits(const Waits& waits, const WaitFilter& filter);

}  // namespace stepscope
