// DeviceProgram: a run with a GPU as the replay sees it. The training thread
// and the autograd threads that launch for it are one chain of host nodes; what
// other threads launch rides along at its recorded place in that chain. Every
// launch starts device works, which queue on their streams.
//
// Host time between two calls and the cost of a call stay as they were
// recorded; how long a call waits, and when a work starts, follow from the
// edges: launch -> work, order on a stream, a wait put into a stream, a
// blocking call -> what it waited for.
#pragma once

#include <stepscope/trace.h>

#include <array>
#include <cstdint>
#include <vector>

#include "edit/edit.h"
#include "ops/intervals.h"
#include "timeline/timeline.h"

namespace stepscope {

inline constexpr uint32_t kNoActivity = 0xffffffff;

// What a blocking call waits for.
enum class NodeWait : uint8_t {
  kNothing,
  kWork,    // one work, and by the order on its stream all before it
  kDevice,  // everything launched so far
};

// Host time up to a call, then the call.
struct HostNode {
  Span gap;                 // recorded host time before the call
  int64_t call_end_ns = 0;  // gap.end_ns where there is no call
  RowId call = kNone;       // in runtime_calls()
  RowId loader = kNone;     // the loader range the gap lies in
  uint32_t first_work = 0;  // works() this call launched
  uint32_t work_count = 0;
  uint32_t target = kNoActivity;  // NodeWait::kWork: waits for it
  NodeWait wait = NodeWait::kNothing;
  bool launches = false;   // starts device work on the program's threads
  int32_t step_end = -1;   // this step's host window ends behind the node
  double own_ns = 0;       // of the call, not counting its waiting
  double tail_ns = 0;      // from the end of what it waited for
  float before_ns = 0;     // of own_ns: a launch's work before it waits
  float framework_ns = 0;  // of the gap: inside ops and shortly between them
  float zero_grad_ns = 0;  // of the gap: zeroing gradients, adding to them
  float unused_ns = 0;     // of the gap: nodes that no backward pass visits
};

// One activity of the device, in the order of launching.
struct DeviceNode {
  ActivityRef ref;
  Span span;                // recorded
  uint32_t host = 0;        // the node that launched it
  uint32_t stream = 0;      // numbered from 0
  uint32_t first_wait = 0;  // in DeviceProgram::waits
  uint32_t wait_count = 0;
  int32_t step = -1;  // the step whose host window launched it
  bool collective = false;
  bool to_or_from_host = false;
  bool zero_grad = false;     // launched by zeroing gradients or adding to them
  bool in_optimizer = false;  // launched inside an optimizer range
  float offset_ns = 0;        // launched this long after its host node's call
  float latency_ns = 0;       // from launching to starting on an idle device
  float overlap_ns = 0;       // <= 0: begins before its stream is free
  float extra_ns = 0;         // began later than every edge explains
  uint32_t held_by = kNoActivity;  // launched before it on another stream, this
  float held_ns = 0;               // kept the device until then: from its end
};

struct DeviceProgram {
  std::vector<HostNode> hosts;
  std::vector<DeviceNode> works;
  std::vector<uint32_t> waits;                   // works that works wait for
  std::vector<uint32_t> node_of_call;            // by row of runtime_calls()
  std::array<std::vector<uint32_t>, 3> work_of;  // by ActivityTable and row
  std::vector<int64_t> loader_ns;                // host time by row of ranges()
  std::vector<Span> windows;                     // tiled spans of all steps
  std::vector<size_t> steady;                    // indices into windows
  std::vector<RowId> threads;                    // that the chain is made of
  std::vector<Segment> host;                     // what they did all along
  uint32_t first_host = 0;     // the first step begins before it
  int64_t first_begin_ns = 0;  // when the device turned to the first step, and
  double first_lag_ns = 0;     // how far that is behind the host
  uint32_t streams = 0;
  uint32_t deepest_queue = 0;  // works of one stream in flight
  double measured_ns = 0;      // mean steady step
  double host_only_ns = 0;     // the same without waiting
  double unmatched_frac = 0;   // works without a launch
  double batch_ns = 0;         // a worker's time for one; 0 unknown
  double batches_per_step = 0;
  bool loads_in_process = false;  // batches are made on this thread
  int32_t cores = 0;              // usable by this process; 0 unknown
};

inline uint32_t ActivityOf(const DeviceProgram& program, ActivityRef ref) {
  const auto& rows = program.work_of[static_cast<size_t>(ref.table)];
  return ref.row < rows.size() ? rows[ref.row] : kNoActivity;
}

}  // namespace stepscope
