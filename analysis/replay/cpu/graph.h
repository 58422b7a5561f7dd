// CpuProgram: a CPU-only run in the form that replay simulates. The training
// thread is a chain of pieces of work, step after step. Loader workers feed it
// through a queue. All of them compete for the usable cores.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "replay/model/loader.h"
#include "steps/step_parts.h"
#include "steps/steps.h"
#include "timeline/timeline.h"

namespace stepscope {

enum class WorkKind : uint8_t {
  kLoader,    // one batch: made on the training thread, or waited for
  kParallel,  // an op on the intra-op threads
  kSerial,    // everything else
};

// Which edit removes or limits a piece of work.
enum class WorkTag : uint8_t {
  kNone,
  kDispatch,     // framework code between two kernels (Edit::dispatch_ns)
  kZeroGrad,     // zeroing gradients, and adding to the zeros
  kUnusedStack,  // stack traces of nodes that no backward pass visits
  kAnomaly,      // searching for NaN, stack traces of other nodes
  kUnusedGraph,  // making autograd nodes that no backward pass visits, and
                 // page faults for the memory that they hold
};

// Whether work belongs to the optimizer's step (Edit::fused_update).
enum class Update : uint8_t {
  kNone,
  kComputing,  // one of its ops
  kAround,     // framework code between two of its ops
};

// A piece of work of the training thread. Neighbours of the same kind, tag and
// update are joined.
struct Work {
  double ns = 0;  // as recorded
  WorkKind kind = WorkKind::kSerial;
  WorkTag tag = WorkTag::kNone;
  Update update = Update::kNone;
  int32_t ops = 0;  // number of parallel ops in it
  double grows_ns =
      0;           // the part of `ns` that is proportional to the batch size
  Span span = {};  // when it ran; if a segment was split into several pieces,
                   // each of them has the span of the whole segment
};

struct CpuProgram {
  std::vector<std::vector<Work>> steps;  // the steady steps, in time order
  double measured_ns = 0;  // their mean length without the profiler
  int cores = 0;           // cores usable by this process; 0: unknown
  int threads = 0;         // intra-op threads; 0: unknown
  int workers = -1;       // loader workers; 0: batches are made on the training
                          // thread; -1: unknown
  int batches_ahead = 2;  // per worker; DataLoader's default if unknown
  double batch_cpu_ns = 0;  // CPU time to make a batch; 0: unknown
  bool has_loader = false;  // the recording shows loading
  LoaderRate rate;          // of the recorded workers
};

// Makes a program of the steady steps, without the cost of recording them.
// REQUIRES: timelines[i] is the HostTimeline() of the i-th steady step, and
// splits[i] its SplitOnHost().
CpuProgram MakeCpuProgram(const Trace& trace, const OpTree& tree,
                          const Steps& steps,
                          const std::vector<std::vector<Segment>>& timelines,
                          const std::vector<CauseTimes>& splits,
                          const StepParts& parts);

}  // namespace stepscope
