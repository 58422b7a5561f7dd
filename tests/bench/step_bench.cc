// What recording costs one step of the ResNet-18 sample: the cost per event
// times the events of a step, over the step's time. Differences of step times
// would drown in their own noise.
#include <stepscope/profile.h>
#include <stepscope/read.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"
#include "workloads.h"

namespace stepscope::bench {
namespace {

struct SampleStep {
  double events = 0;  // operators, nodes and ranges
  double ns = 0;
};

absl::StatusOr<SampleStep> ReadSample(const std::string& path) {
  absl::StatusOr<Trace> trace = ReadTrace(path);
  if (!trace.ok()) return trace.status();
  if (trace->steps().empty()) {
    return absl::InvalidArgumentError(path + " has no steps");
  }
  std::vector<double> ns;
  for (const Step& step : trace->steps()) {
    ns.push_back(static_cast<double>(step.end_ns - step.begin_ns));
  }
  const double steps = static_cast<double>(ns.size());
  return SampleStep{.events = static_cast<double>(trace->ops().size() +
                                                  trace->ranges().size()) /
                              steps,
                    .ns = Median(ns)};
}

// Per operator: with a session in its wait steps, with Kineto prepared but not
// started, each less what it costs without.
std::pair<std::vector<double>, std::vector<double>> WaitingCosts(int rounds) {
  constexpr int kOps = 20000;
  std::vector<double> ours, peer;
  for (int round = -1; round < rounds; ++round) {
    const double nothing = AddOps(1, kOps);
    double waiting = 0;
    {
      Profile profile({.name = "bench",
                       .schedule = {.wait = 1000000},
                       .print_report = false});
      profile.Step();
      waiting = AddOps(1, kOps);
    }
    using namespace torch::autograd::profiler;
    prepareProfiler(ProfilerConfig(ProfilerState::KINETO), {ActivityType::CPU});
    const double prepared = AddOps(1, kOps);
    if (round < 0) continue;
    ours.push_back(waiting - nothing);
    peer.push_back(prepared - nothing);
  }
  return {ours, peer};
}

}  // namespace

void RunStepRows(const BenchOptions& options, Results& results) {
  if (!Wanted(options, "outside_window") && !Wanted(options, "sample_step")) {
    return;
  }
  const absl::StatusOr<SampleStep> sample = ReadSample(options.sample_trace);
  if (!sample.ok()) {
    results.Skip("outside_window", sample.status().ToString());
    results.Skip("sample_step", sample.status().ToString());
    return;
  }
  const double per_step = sample->events / sample->ns;
  const auto [ours, peer] = WaitingCosts(options.rounds);
  // Below zero is noise around zero.
  results.Add({.name = "outside_window",
               .unit = "of step",
               .ours = std::max(0.0, Median(ours)) * per_step,
               .peer = std::max(0.0, Median(peer)) * per_step,
               .limit = 0,
               .repetitions = options.rounds,
               .spread_frac = 0,
               .bound = 0.005,
               .bound_is_absolute = true});
  const Result& cost = results.row("op_sample");
  results.Add({.name = "sample_step",
               .unit = "of step",
               .ours = cost.ours * per_step,
               .peer = cost.peer * per_step,
               .limit = 0,
               .repetitions = cost.repetitions,
               .spread_frac = cost.spread_frac,
               .bound = 0.01,
               .bound_is_absolute = true});
  std::printf("the sample's step: %.0f events, %.1f ms\n", sample->events,
              sample->ns / 1e6);
}

}  // namespace stepscope::bench
