// CpuProgram: a CPU-only run as the replay sees it. The training thread is a
// chain of work, step after step; loader workers feed it through a queue.
// Everything competes for the usable cores.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/op_traits.h"
#include "steps/step_parts.h"
#include "steps/steps.h"
#include "timeline/timeline.h"

namespace stepscope {

enum class WorkKind : uint8_t {
  kLoader,    // one batch: made on this thread, or waited for
  kParallel,  // an op on the intra-op threads
  kSerial,    // everything else
};

// What an edit may take away.
enum class WorkTag : uint8_t {
  kNone,
  kDispatch,     // framework code between two kernels
  kZeroGrad,     // zeroing gradients, and adding to the zeros
  kUnusedStack,  // keeping stack traces of nodes that no backward pass visits
  kAnomaly,      // searching for NaN, keeping stack traces of nodes
  kUnusedGraph,  // making autograd nodes that no backward pass visits
};

// Of the optimizer's step.
enum class Update : uint8_t {
  kNone,
  kComputing,
  kAround,  // framework code between two of its ops
};

struct Work {
  double ns = 0;
  WorkKind kind = WorkKind::kSerial;
  WorkTag tag = WorkTag::kNone;
  Update update = Update::kNone;
  int32_t ops = 0;      // parallel ops in it
  double grows_ns = 0;  // of `ns`: grows with the samples in a step
};

struct CpuProgram {
  std::vector<std::vector<Work>> steps;  // the steady ones
  double measured_ns = 0;                // their mean
  int cores = 0;                         // usable by this process; 0 unknown
  int threads = 0;                       // intra-op; 0 unknown
  int workers = -1;  // loader workers; 0: batches are made on the training
                     // thread; -1 unknown
  double batch_cpu_ns = 0;  // CPU time of a batch; 0 unknown
  bool has_loader = false;
};

// Splits a step's timeline of the training thread into a program.
// REQUIRES: timelines has one entry per steady step.
CpuProgram MakeCpuProgram(const Trace& trace, const OpTree& tree,
                          const Steps& steps,
                          const std::vector<std::vector<Segment>>& timelines,
                          const StepParts& parts);

// Workers of the loader that feeds the training thread, told by its Loader row
// or by the names of its ranges; -1 if neither tells.
int LoaderWorkers(const Trace& trace);

}  // namespace stepscope
