// Measured: what is worked out once about a Trace, for all rules to read.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "blocking.h"
#include "causes.h"
#include "collectives.h"
#include "critical_path.h"
#include "device_ledger.h"
#include "graph.h"
#include "kernel_uses.h"
#include "op_traits.h"
#include "patterns.h"
#include "replay.h"
#include "step_parts.h"
#include "steps.h"
#include "timeline.h"

namespace stepscope {

struct Measured {
  explicit Measured(const Trace& trace);

  const Trace& trace;
  OpTree tree;
  Steps steps;
  Stretch replayed;  // what of the steps replay and critical path take
  StepStats stats;
  bool has_gpu = false;
  // Per step window, over its tiled span.
  std::vector<CauseTimes> splits;
  // Per steady step of a CPU-only run: what the training thread did.
  std::vector<std::vector<Segment>> timelines;
  StepParts parts;
  std::optional<DeviceLedger> ledger;  // runs with a GPU
  KernelUses kernels;                  // the same
  std::vector<Collective> collectives;
  Waits waits;  // runs with a GPU
  Replay replay;

  double MeanNs(Cause cause) const;    // per steady step
  Spread SpreadMs(Cause cause) const;  // over the steady steps
  double step_ns() const { return stats.mean_ms * 1e6; }
  // The share of steady steps in which `cause` takes at least `ns`.
  double ShareOfStepsWith(Cause cause, double ns) const;
  // Of `replayed`: its steady steps of a CPU-only run, all of one with a GPU.
  std::vector<PathPiece> CriticalPath() const;
  // Ops (CPU) or launches (GPU) per steady step.
  double CallsPerStep() const;
};

}  // namespace stepscope
