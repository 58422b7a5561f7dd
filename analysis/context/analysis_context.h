// AnalysisContext: what is worked out once about a Trace, for all rules to
// read.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/blocking.h"
#include "device/collectives.h"
#include "device/device_ledger.h"
#include "device/kernel_uses.h"
#include "ops/op_traits.h"
#include "replay/cpu/graph.h"
#include "replay/critical_path.h"
#include "replay/replay.h"
#include "steps/patterns.h"
#include "steps/step_parts.h"
#include "steps/steps.h"
#include "timeline/causes.h"
#include "timeline/timeline.h"

namespace stepscope {

struct AnalysisContext {
  explicit AnalysisContext(const Trace& trace);

  const Trace& trace;
  OpTree tree;
  Steps steps;
  ReplayWindow replayed;  // what of the steps replay and critical path take
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
