#include "context/analysis_context.h"

#include <algorithm>

#include "device/whole_recording.h"
#include "replay/gpu/record_program.h"
#include "steps/non_training_steps.h"
#include "steps/steady_steps.h"
#include "timeline/time_split.h"

namespace stepscope {
namespace {

// Replaying more steps costs time and memory and does not change the means.
constexpr size_t kReplayedSteps = 128;

Steps StepsOf(const Trace& trace, const OpTree& tree,
              std::vector<StepFacts>& facts) {
  Steps steps = FindSteps(trace, tree);
  TakeWholeRecording(trace, steps);
  facts = FactsOf(trace, tree, steps);
  MarkNonTrainingSteps(trace, tree, facts, steps);
  return steps;
}

// What the training thread did from the first step to the last one.
std::vector<Segment> HostOf(const Trace& trace, const OpTree& tree,
                            const Steps& steps) {
  const StepWindow& first = steps.windows.front();
  const StepWindow& last = steps.windows.back();
  return HostTimeline(trace, tree, steps.thread,
                      {std::min(first.host.begin_ns, first.tiled.begin_ns),
                       std::max(last.host.end_ns, last.tiled.end_ns)});
}

}  // namespace

// Each member is initialised before the ones that need it. Steps come first,
// because everything else is measured per step.
AnalysisContext::AnalysisContext(const Trace& t, bool as_recorded)
    : trace(t),
      tree(t),
      steps(StepsOf(t, tree, facts)),
      usual(UsualOf(t, tree, steps, facts)),
      stats(StatsOf(steps)),
      sizes(FindSizeVariation(t, tree, steps)),
      has_gpu(t.has_device_work()),
      recorder(as_recorded ? RecorderCost() : CostOfRecording(t, tree, steps)),
      parts(t, tree, steps),
      forward(FindForwardSteps(t, tree, steps, parts.optimizer.spans)),
      backward(t),
      graph_walks(FindGraphWalks(t, tree, steps)) {
  if (steps.empty()) return;
  host = HostOf(trace, tree, steps);
  contention = FindContention(trace, steps);
  collectives = FindCollectives(trace, tree, steps, host);
  if (has_gpu) {
    replayed = ChooseReplayWindow(steps, kReplayedSteps);
    ledger = MakeDeviceLedger(trace, tree, steps, host, recorder);
    splits = ledger->splits;
    stalls = FindStalls(trace, tree, steps, facts, usual, splits);
    replay = Replay(MakeDeviceProgram(trace, tree, replayed, parts, recorder));
    TellUnprofiledStep();
    kernels = FindKernelUses(trace, steps, parts.optimizer, ledger->device);
    waits = FindWaits(trace, tree, steps, ledger->device, !collectives.empty());
    return;
  }
  replayed.steps = steps;
  for (const StepWindow& step : steps.windows) {
    std::vector<Segment> part = Slice(host, step.tiled);
    splits.push_back(SplitOnHost(trace, steps.thread, part, recorder));
    // The replay of a CPU-only run uses only the steady steps.
    if (std::ranges::binary_search(steps.steady, splits.size() - 1)) {
      timelines.push_back(std::move(part));
    }
  }
  stalls = FindStalls(trace, tree, steps, facts, usual, splits);
  TellUnprofiledStep();
  std::vector<CauseTimes> steady;
  for (size_t i : steps.steady) steady.push_back(splits[i]);
  replay = Replay(MakeCpuProgram(trace, tree, steps, timelines, steady, parts));
  if (IsTooDistorted(stats)) {
    replay.Distrust("recording takes longer than the step itself");
  }
  // Must come after the replay was built, because replay has to reproduce the
  // recorded times, which include the time without a core.
  if (contention.is_large) MoveToContended(trace, steps, splits);
}

void AnalysisContext::TellUnprofiledStep() {
  // With a GPU, part of the recording cost is hidden behind device work. The
  // replay without the recorder shows how much of it lengthens the step.
  const double cost_ms = replay.check().valid && has_gpu
                             ? stats.mean_ms * (1 - replay.unrecorded_frac())
                             : MeanNs(Cause::kProfiler) * 1e-6;
  if (cost_ms <= 0) return;
  stats.unprofiled_ms = stats.mean_ms - cost_ms;
  stats.cost_estimated = recorder.estimated;
}

double AnalysisContext::MeanNs(Cause cause) const {
  int64_t total = 0;
  for (size_t i : steps.steady) total += splits[i][cause];
  return steps.steady.empty() ? 0
                              : static_cast<double>(total) /
                                    static_cast<double>(steps.steady.size());
}

Spread AnalysisContext::SpreadMs(Cause cause) const {
  Spread spread;
  for (size_t i : steps.steady) {
    const double ms = splits[i][cause] * 1e-6;
    spread.least = i == steps.steady.front() ? ms : std::min(spread.least, ms);
    spread.most = std::max(spread.most, ms);
  }
  return spread;
}

double AnalysisContext::ShareOfStepsWith(Cause cause, double ns) const {
  double count = 0;
  for (size_t i : steps.steady) count += splits[i][cause] >= ns;
  return steps.steady.empty() ? 0 : count / steps.steady.size();
}

double AnalysisContext::CallsPerStep() const {
  if (steps.steady.empty()) return 0;
  if (ledger) return static_cast<double>(ledger->launches_per_step);
  double ops = 0;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    if (!tree.computes(row)) continue;
    ops += InSteadyStep(steps, trace.ops()[row].begin_ns);
  }
  return ops / steps.steady.size();
}

// On a CPU-only run the path is the training thread's timeline; waits for
// workers and other ranks are part of it.
std::vector<PathPiece> AnalysisContext::CriticalPath() const {
  // Without launches, no path leads through the GPU's work.
  if (steps.thread == kNone) return {};
  if (const DeviceProgram* program = replay.device()) {
    return FindCriticalPath(trace, *program);
  }
  std::vector<PathPiece> path;
  for (const std::vector<Segment>& timeline : timelines) {
    for (const Segment& segment : timeline) {
      path.push_back({.span = {segment.begin_ns, segment.end_ns},
                      .cause = segment.cause,
                      .op = segment.op});
    }
  }
  return path;
}

}  // namespace stepscope
