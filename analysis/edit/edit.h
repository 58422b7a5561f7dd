// Edit: a what-if. A set of changes to the recorded steps that replay applies
// together. A default Edit changes nothing. Row ids are those of the Trace the
// edit was made for; an edit must not be used with another Trace.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/activity.h"
#include "ops/intervals.h"

namespace stepscope {

// Shortens what `thread` does in `span` to `keep_ns`. Its launches still
// happen; to remove their activities, use an ActivityScale of 0. On a CPU-only
// run, the cut applies to what the training thread does or waits for in `span`:
// all parts are shortened by the same factor, except data loading, which stays
// as it is.
struct HostCut {
  RowId thread = kNone;
  Span span;
  double keep_ns = 0;  // nothing changes if the thread takes less already
  // The change in words, "fused attention"; a literal, or null where only the
  // number of such cuts is worth saying.
  const char* change = nullptr;
  bool operator==(const HostCut&) const = default;
};

// Multiplies the device time of one activity by `factor`; 0 removes it.
struct ActivityScale {
  ActivityRef activity;
  double factor = 1;
  // The factor rests on a rate that the recording does not show, for example
  // that of a bus that no copy used at full speed. So the activity may also
  // take as long as before.
  bool assumed = false;
  bool operator==(const ActivityScale&) const = default;
};

// Issues an activity on a stream of its own as soon as `after` has ended, which
// was launched before it. Whatever waited for it still does.
struct EarlyStart {
  ActivityRef activity;
  ActivityRef after;
  auto operator<=>(const EarlyStart&) const = default;  // NOLINT(*nullptr)
};

struct Edit {
  // The training loop.
  int workers = -1;  // loader workers that make the batches; -1: as recorded
  int threads = -1;  // intra-op threads; -1: as recorded
  double batch = 1;  // batch size / recorded batch size. Replay then gives the
                     // time for the number of samples in a recorded step
  bool channels_last = false;   // no effect on the predicted time: a recording
                                // without it does not show its effect on a CPU
  bool drop_zero_grad = false;  // gradients are set to None, not zeroed
  bool drop_unused_graph = false;  // forward passes without a backward pass
                                   // record no autograd nodes
  bool drop_anomaly = false;  // no search for NaN, no stack traces of nodes
  double fused_update = -1;   // the optimizer updates all parameters in one op,
                             // which takes this share of the time its ops took;
                             // -1: as recorded
  double dispatch_ns = -1;  // upper limit on the time of framework code per
                            // kernel or launch; -1: as recorded

  std::vector<HostCut> cuts = {};

  // Runs with a GPU.
  std::vector<RowId> no_wait = {};  // runtime calls that return at once: a
                                    // synchronisation does not wait, a blocking
                                    // copy becomes asynchronous
  std::vector<ActivityScale> scales = {};
  // Activities that run on a stream of their own once launched. Nothing waits
  // for those in `side_stream`, and only the optimizer for those in
  // `overlapped`.
  std::vector<ActivityRef> side_stream = {};
  std::vector<ActivityRef> overlapped = {};
  // Activities that no longer wait for the end of the backward pass. At most
  // one entry for each.
  std::vector<EarlyStart> early = {};
  // Activities that no longer wait for other streams.
  std::vector<ActivityRef> no_dependency = {};

  bool operator==(const Edit&) const = default;
};

// Returns an Edit that makes both changes. If both set the same field, the
// value in `b` is used; if both scale the same activity, the smaller factor is
// used.
Edit Combine(Edit a, const Edit& b);

}  // namespace stepscope
