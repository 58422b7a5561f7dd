// Computes what recording costs per step of the ResNet-18 sample: the cost per
// event times the events of a step, plus the fixed costs per window and per
// step, divided by the step's time. A direct difference of step times would be
// smaller than the noise.
#include <stepscope/profile.h>
#include <stepscope/read.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"
#include "turns.h"
#include "workloads.h"

namespace stepscope::bench {
namespace {

// Means over the steps of a recorded run, except for the time, which is the
// median.
struct SampleStep {
  double events = 0;  // operators, autograd nodes and ranges
  double allocations = 0;
  double steps = 0;  // steps in the window
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
  return SampleStep{
      .events =
          static_cast<double>(trace->ops().size() + trace->ranges().size()) /
          steps,
      .allocations = static_cast<double>(trace->allocations().size()) / steps,
      .ns = Median(ns)};
}

double StepNs(Profile& profile, int steps) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) profile.Step();
  const std::chrono::duration<double, std::nano> passed =
      std::chrono::steady_clock::now() - begin;
  return passed.count() / steps;
}

// Returns the time of one Step() of a Profile in its wait steps.
double WaitingStepNs() {
  Profile profile(
      {.name = "bench", .schedule = {.wait = 1000000}, .print_report = false});
  profile.Step();
  return StepNs(profile, 1000);
}

// Measures what timing a step of the whole run costs: Step() after the last
// window, when all collectors have stopped. These steps are far shorter than
// real ones, so the timer folds blocks of steps as often as it ever will.
void RunWholeRunRow(int rounds, Results& results) {
  constexpr double kMostNs = 100;
  ProfileOptions options{.name = "bench",
                         .schedule = {.wait = 0, .warmup = 0, .active = 1},
                         .print_report = false};
  options.collectors.emplace();
  Profile profile(std::move(options));
  std::vector<double> ns;
  for (int round = 0; round < rounds; ++round) {
    ns.push_back(StepNs(profile, 1'000'000));
  }
  results.Add({.name = "run_step",
               .unit = "ns",
               .ours = Median(ns),
               .limit = kMostNs,
               .repetitions = rounds,
               .spread = Spread(ns),
               .bound_of_limit = 1});
}

// Measures the cost per operator of a session in its wait steps and of a
// prepared Kineto that has not started. A median below zero means that our cost
// is below the noise.
void RunOutsideRow(const SampleStep& sample, int rounds, Results& results) {
  constexpr std::array kRecorders = {Recorder::kOursWaiting,
                                     Recorder::kKinetoPrepared};
  auto added = AddedNs(kRecorders, {}, rounds, [] { return AddOps(1, 20000); });
  const double step_ns = WaitingStepNs();
  const double noise_ns =
      Spread(added[0]) * std::abs(Median(added[0])) * sample.events;
  for (double& ns : added[0]) ns = (ns * sample.events + step_ns) / sample.ns;
  for (double& ns : added[1]) ns = ns * sample.events / sample.ns;
  results.Add({.name = "outside_window",
               .unit = "of step",
               .ours = Median(added[0]),
               .peer = Median(added[1]),
               .limit = 0,
               .repetitions = rounds,
               .spread = Spread(added[0]),
               .bound = 0.005,
               .bound_is_absolute = true});
  std::printf(
      "  Step() while waiting: %.0f ns; quartiles of ours are %.1e of "
      "a step apart\n",
      step_ns, noise_ns / sample.ns);
}

}  // namespace

void RunStepRows(const BenchOptions& options, Results& results) {
  if (Wanted(options, "run_step")) RunWholeRunRow(options.rounds, results);
  const bool wants_outside = Wanted(options, "outside_window");
  const Result* cost = results.row("op_sample");
  const bool wants_step = Wanted(options, "sample_step") || cost != nullptr;
  if (!wants_outside && !wants_step) return;
  const absl::StatusOr<SampleStep> sample = ReadSample(options.sample_trace);
  if (!sample.ok()) {
    if (wants_outside) {
      results.Skip("outside_window", sample.status().ToString());
    }
    if (wants_step) results.Skip("sample_step", sample.status().ToString());
    return;
  }
  std::printf("the sample's step: %.0f events, %.0f allocations, %.1f ms\n",
              sample->events, sample->allocations, sample->ns / 1e6);
  if (wants_outside) RunOutsideRow(*sample, options.rounds, results);
  if (!wants_step) return;
  if (cost == nullptr) {
    results.Skip("sample_step", "it needs op_sample");
    return;
  }
  // The window opens when warm-up starts (row window_open), so no active step
  // pays for it.
  const auto of_step = [&](double event_ns) {
    return event_ns * sample->events / sample->ns;
  };
  results.Add({.name = "sample_step",
               .unit = "of step",
               .ours = of_step(cost->ours),
               .peer = of_step(*cost->peer),
               .limit = 0,
               .repetitions = cost->repetitions,
               .spread = cost->spread,
               .bound = 0.01,
               .bound_is_absolute = true});
}

}  // namespace stepscope::bench
