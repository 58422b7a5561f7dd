// Edit: a what-if. Any set of changes to the recorded steps, replayed together.
// Fields left alone change nothing. Rows are those of the Trace the edit was
// made for.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/activity.h"
#include "ops/intervals.h"

namespace stepscope {

// Of what a host thread does in `span`, at most `keep_ns` remains. Launches in
// it still happen; drop their work by a scale of 0.
struct HostCut {
  RowId thread = kNone;
  Span span;
  double keep_ns = 0;
  bool operator==(const HostCut&) const = default;
};

// The device time of one activity, times `factor`; 0 drops it.
struct ActivityScale {
  ActivityRef work;
  double factor = 1;
  bool operator==(const ActivityScale&) const = default;
};

struct Edit {
  // The loop.
  int workers = -1;  // batches are made by this many loader workers
  int threads = -1;  // intra-op threads
  double batch = 1;  // samples per step, times; gains are then per sample
  bool channels_last = false;  // nobody can tell from channels-first what it
                               // brings on a CPU: no time, but a wider range
  bool drop_zero_grad = false;
  bool drop_unused_graph = false;
  bool drop_anomaly = false;  // no search for NaN, no stack traces of nodes
  double fused_update = -1;   // the optimizer computes in one op and takes this
                              // share of the time its ops took
  double dispatch_ns = -1;    // framework code costs at most this per kernel

  // Runs with a GPU.
  std::vector<RowId> no_wait =
      {};  // runtime calls that return at once: a wait is
           // not waited, a blocking copy is asynchronous
  std::vector<HostCut> cuts = {};
  std::vector<ActivityScale> scales = {};
  std::vector<ActivityRef> side_stream =
      {};  // on a stream of its own as soon as it is
           // launched, and nothing waits for it
  std::vector<ActivityRef> overlapped =
      {};  // the same, but the optimizer waits for it
  std::vector<ActivityRef> no_dependency =
      {};  // does not wait for another stream

  // What the model cannot know; varied to give a gain its range.
  double efficiency = 0.85;  // of doubling the intra-op threads; the first
                             // doubling loses a third as much
  double worker_cost = 1;    // CPU time of a batch in a worker / on the
                             // training thread
  double scale_error = 1;    // device time saved by scales, times this

  bool operator==(const Edit&) const = default;
};

// Both changes; where they disagree, that of `b`. Two scales of one activity:
// the smaller factor.
Edit Combine(const Edit& a, const Edit& b);

}  // namespace stepscope
