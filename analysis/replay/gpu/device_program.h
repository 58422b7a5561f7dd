// DeviceProgram: a run with a GPU in the form that replay simulates. The
// training thread and the autograd threads form one chain of host nodes,
// because only one of them runs at a time. Launches of other threads keep their
// recorded place in that chain. Launches start activities, which queue on their
// streams.
//
// Host time between calls and the cost of a call are taken from the recording,
// without the cost of the recorder. How long a call waits and when an activity
// starts follow from the edges: a launch before its activity, the order on a
// stream, a wait put into a stream, and an activity before the end of the
// blocking call that waits for it.
#pragma once

#include <stepscope/trace.h>

#include <array>
#include <cstdint>
#include <vector>

#include "edit/edit.h"
#include "ops/intervals.h"
#include "replay/model/loader.h"
#include "timeline/timeline.h"

namespace stepscope {

// No activity, or no host node.
inline constexpr uint32_t kNoActivity = 0xffffffff;
// The first host node represents the launches before the recording.
inline constexpr uint32_t kBacklogNode = 0;

// What a blocking call waits for.
enum class NodeWait : uint8_t {
  kNothing,
  kActivity,  // one activity, and so all before it on its stream
  kDevice,    // everything launched so far
};

// Host time up to a call, then the call. Nodes cover the chain without gaps.
struct HostNode {
  Span gap;                       // recorded host time before the call
  int64_t call_end_ns = 0;        // gap.end_ns if there is no call
  RowId call = kNone;             // in runtime_calls()
  RowId loader = kNone;           // the loader range that contains the gap
  uint32_t first_activity = 0;    // the activities that this call launched, as
  uint32_t activity_count = 0;    // indices into DeviceProgram::activities
  uint32_t target = kNoActivity;  // the activity that it waits for
  NodeWait wait = NodeWait::kNothing;
  bool launches = false;  // a call of the chain itself, not of another thread
  int32_t step_end = -1;  // the host window of this step ends after the node
  double own_ns = 0;      // time of the call without its wait
  double tail_ns = 0;     // from the end of the target to the call's return
  float before_ns = 0;    // the part of own_ns before a launch starts to wait
  // Parts of the gap:
  float framework_ns = 0;  // inside ops, and short pauses between them
  float zero_grad_ns = 0;  // zeroing gradients and adding to the zeros
  float unused_ns = 0;     // making nodes that no backward pass visits
  float recorder_ns = 0;   // what recording the node's ops and its call cost
};

// An activity. Activities are numbered in the order of launching.
struct DeviceNode {
  ActivityRef ref;
  Span span;                // recorded
  uint32_t host = 0;        // the node that launched it
  uint32_t stream = 0;      // streams are numbered from 0
  uint32_t first_wait = 0;  // what it waits for on other streams, as indices
  uint32_t wait_count = 0;  // into DeviceProgram::waits
  int32_t step = -1;        // the step whose host window launched it; -1: none
  uint32_t queued = 0;      // launches of its stream in flight, with its own
  bool collective = false;
  bool to_or_from_host = false;  // a copy between host and device
  bool zero_grad = false;  // launched by zeroing gradients or adding to zeros
  bool in_optimizer = false;  // launched inside an optimizer range
  bool in_graph = false;      // part of a CUDA graph, which one call launches
  float offset_ns = 0;        // from the start of its node's call to its launch
  float latency_ns = 0;       // from the launch to its start on an idle device
  float overlap_ns = 0;       // <= 0: it begins before its stream is free
  float extra_ns = 0;         // delay while other streams used the device
  float opaque_ns = 0;        // further delay that a graph does not show
  // The activity of another stream that used the device before this one
  // started, and the time from its end to this start.
  uint32_t held_by = kNoActivity;
  float held_ns = 0;
};

struct DeviceProgram {
  std::vector<HostNode> hosts;         // in time order
  std::vector<DeviceNode> activities;  // in the order of launching
  std::vector<uint32_t> waits;         // activities that activities wait for
  std::vector<uint32_t> node_of_call;  // host node, by row of runtime_calls()
  // Index into activities, by ActivityTable and row.
  std::array<std::vector<uint32_t>, 3> activity_of;
  std::vector<int64_t> loader_ns;  // host time, by row of ranges()
  std::vector<Span> windows;       // tiled spans of all steps
  std::vector<size_t> steady;      // indices into windows
  std::vector<RowId> threads;      // the threads of the chain
  std::vector<Segment> host;       // the timeline of the chain
  uint32_t first_host = 0;         // the first host node inside the first step
  // When the device started on the first step, and how far that is after the
  // start of the step's host window.
  int64_t first_begin_ns = 0;
  double first_lag_ns = 0;
  uint32_t streams = 0;        // number of streams
  uint32_t deepest_queue = 0;  // most launches of one stream in flight
  double measured_ns = 0;      // mean steady step
  double host_only_ns = 0;     // the same without waits for the device
  double one_off_ns = 0;       // mean one-off work (once per process) in a step
  double unmatched_frac = 0;   // share of activities without a launch, 0 to 1
  double batch_ns = 0;         // time to make a batch; 0: unknown
  double batches_per_step = 0;
  bool loads_in_process = false;  // the training thread makes the batches
  LoaderRate rate;                // of the recorded workers
  int32_t cores = 0;              // cores usable by this process; 0: unknown
};

// True if the same launch of a CUDA graph started both activities.
inline bool SameGraph(const DeviceNode& a, const DeviceNode& b) {
  return a.in_graph && b.in_graph && a.host == b.host;
}

// Returns the index of an activity, or kNoActivity if it is not in the program.
inline uint32_t ActivityOf(const DeviceProgram& program, ActivityRef ref) {
  const auto& rows = program.activity_of[static_cast<size_t>(ref.table)];
  return ref.row < rows.size() ? rows[ref.row] : kNoActivity;
}

}  // namespace stepscope
