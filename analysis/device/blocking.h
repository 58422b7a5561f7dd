// Waits: when the training thread, or an autograd thread that works for it, is
// blocked until the GPU has done something, and how much device time that
// costs.
//
// Where the wait of a blocking copy is recorded depends on its direction, the
// kind of host memory and the CUDA version: inside the copy call, or in the
// synchronisation that follows in the same op. A copy call and such a
// synchronisation are therefore one wait.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/gaps.h"
#include "edit/edit.h"
#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

enum class WaitKind : uint8_t {
  kToHost,    // a copy from the device: reading a result
  kToDevice,  // a copy from host memory
  kOnDevice,  // a copy within the device
  kInOp,      // a synchronisation inside an op, without a copy
  kExplicit,  // a synchronisation that the program asked for
};

struct HostWait {
  Span span;  // from the start of the first call to the end of the last
  int64_t blocked_ns = 0;   // inside the calls
  int64_t queued_ns = 0;    // the part of blocked_ns before the copy began in
                            // which the device was busy, that is, waiting for
                            // what was launched earlier; all of blocked_ns if
                            // there is no copy
  RowId copy_call = kNone;  // in runtime_calls()
  RowId sync_call = kNone;  // in runtime_calls()
  RowId copy = kNone;       // in copies()
  RowId op = kNone;         // the innermost op around the first call
  RowId thread = kNone;
  size_t step = 0;  // index into Steps::windows
  WaitKind kind = WaitKind::kExplicit;
  bool steady = false;  // in a steady step
  // A wait for the whole device after which nothing is launched or read: the
  // end of the recording, usually not part of the program's loop.
  bool is_last = false;
};

using WaitFilter = std::function<bool(const HostWait&)>;

struct Waits {
  std::vector<HostWait> all;    // in time order; only those inside steps
  std::vector<Gap> idle;        // gaps without any activity, in time order
  std::vector<Gap> no_compute;  // gaps with at most collectives running
};

// Finds the waits in all steps and the gaps of `device`. `collectives`: some
// kernels are collectives.
Waits FindWaits(const Trace& trace, const OpTree& tree, const Steps& steps,
                int32_t device, bool collectives);

// Means per steady step over the waits that pass a filter.
struct WaitSums {
  double blocked_ns = 0;
  double queued_ns = 0;
  double count = 0;
  // The share of the sum in the one step that has most of it, 0 to 1; NaN if
  // the sum is 0.
  double once_blocked_frac = 0;
  double once_queued_frac = 0;
  // Device idle time directly after the waits, while the host is late.
  double bubble_ns = 0;
  // Upper bound of the gain of removing the waits: their own transfers, plus
  // the device's idle time while the host is late, as far as the time lost in
  // the waits explains it.
  double bound_ns = 0;
};
WaitSums SumWaits(const Waits& waits, const Steps& steps,
                  const WaitFilter& filter);

// False if the waits happened in essentially one of several steps (more than
// 80 % of their time in one of at least three), such as a checkpoint or the
// queue that warm-up left behind. `once_frac` is a field of WaitSums.
bool Recurs(double once_frac, const Steps& steps);

// An edit that makes the runtime calls of these waits return at once.
Edit WithoutWaits(const Waits& waits, const WaitFilter& filter);

}  // namespace stepscope
