// AnalysisContext: everything the rules share about one Trace, computed once by
// its constructor. Read-only afterwards, so rules may run on any thread.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "context/contention.h"
#include "context/graph_walks.h"
#include "context/size_variation.h"
#include "context/stalls.h"
#include "device/blocking.h"
#include "device/collectives.h"
#include "device/device_ledger.h"
#include "device/kernel_uses.h"
#include "ops/backward_nodes.h"
#include "ops/op_traits.h"
#include "replay/cpu/graph.h"
#include "replay/critical_path.h"
#include "replay/replay.h"
#include "steps/forward_steps.h"
#include "steps/patterns.h"
#include "steps/step_facts.h"
#include "steps/step_parts.h"
#include "steps/steps.h"
#include "timeline/causes.h"
#include "timeline/recorder_cost.h"
#include "timeline/timeline.h"
#include "words/labels.h"

namespace stepscope {

// True if recording takes longer than the step itself: then the recorded times
// predict nothing.
inline bool IsTooDistorted(const StepStats& stats) {
  return stats.unprofiled_ms > 0 && stats.mean_ms > 2 * stats.unprofiled_ms;
}

struct AnalysisContext {
  // `trace` must outlive the context. Never fails: without steps, most members
  // are empty. With `as_recorded`, the recorder's cost is not taken out.
  explicit AnalysisContext(const Trace& trace, bool as_recorded = false);

  const Trace& trace;
  OpTree tree;
  std::vector<StepFacts> facts;  // by index of steps.windows
  Steps steps;
  UsualStep usual;
  ReplayWindow replayed;  // the steps that replay and critical path cover
  StepStats stats;
  Stalls stalls;        // over all steps but warm-up
  SizeVariation sizes;  // of the inputs, from step to step
  bool has_gpu = false;
  RecorderCost recorder;  // what recording an event cost
  // What each step spent its time on, by index of steps.windows; the parts add
  // up to the tiled span.
  std::vector<CauseTimes> splits;
  // What the training thread did, from the first step to the last one.
  std::vector<Segment> host;
  // CPU-only runs: the part of `host` in each steady step.
  std::vector<std::vector<Segment>> timelines;
  StepParts parts;
  std::vector<ForwardStep> forward;  // of the steady steps
  BackwardNodes backward;
  std::vector<GraphWalk> graph_walks;  // of the steady steps
  std::optional<DeviceLedger> ledger;  // runs with a GPU
  KernelUses kernels;                  // runs with a GPU
  std::vector<Collective> collectives;
  Waits waits;  // runs with a GPU
  Replay replay;
  Contention contention;

  double MeanNs(Cause cause) const;    // mean per steady step
  Spread SpreadMs(Cause cause) const;  // over the steady steps
  double step_ns() const { return stats.mean_ms * 1e6; }
  // The step that gains refer to.
  double gain_step_ms() const { return GainStepMs(stats); }
  // The same for gains over all steps, which take `recorded_ms` on average.
  double gain_step_ms(double recorded_ms) const {
    return std::max(gain_step_ms(),
                    recorded_ms - (stats.mean_ms - gain_step_ms()));
  }
  // The share of steady steps in which `cause` takes at least `ns`, 0 to 1.
  double ShareOfStepsWith(Cause cause, double ns) const;
  // The critical path in time order: over the steady steps of a CPU-only run,
  // and over all steps in `replayed` of a run with a GPU.
  std::vector<PathPiece> CriticalPath() const;
  // Computing ops (CPU-only runs) or launches (runs with a GPU) per steady
  // step.
  double CallsPerStep() const;

 private:
  void TellUnprofiledStep();
};

}  // namespace stepscope
