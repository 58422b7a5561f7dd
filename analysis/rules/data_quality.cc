// Can the numbers be trusted? These rules claim no gain; they withdraw or
// qualify the others'.
// Sources: pytorch PR 192094 and kineto PR 1545 (records lost or left over);
// "17 tips", number 13 (profilers slow training down); the case study's longer
// warm-up.
#include <algorithm>
#include <cmath>
#include <string>

#include "context/rule.h"
#include "evidence/missing_rows.h"
#include "evidence/recording_load.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kBadTimes = 0.001;
constexpr double kUnmatched = 0.01;
constexpr double kNearlyAll = 0.95;
constexpr double kDistorted = 0.05, kVeryDistorted = 0.15;
constexpr size_t kWaitsToLeaveOneOut = 4;
constexpr double kOverheadOffline = 0.03;
constexpr double kDevicePaces = 0.9;  // busy so much of the step
// With shapes, memory and stacks on; on a machine that others use, steps may
// differ by far more.
constexpr double kMostNsPerEvent = 3'000;
constexpr double kNsPerOpOffline = 4'000;

Finding Status(FindingStatus status, Confidence confidence) {
  Finding finding;
  finding.status = status;
  finding.confidence = confidence;
  return finding;
}

// A collector that did not run has lost nothing of what was being watched;
// where nothing could run, that is an error.
bool IsAbsence(const Loss& loss) {
  return loss.severity != Severity::kError &&
         (loss.name.find("unavailable") != std::string::npos ||
          loss.name.find("not-started") != std::string::npos);
}

// Rows that cannot be: reversed, or before 1980 in a file of the epoch's.
int64_t BadTimes(const Trace& trace, int64_t& rows) {
  int64_t bad = 0;
  const auto count = [&](const auto& table) {
    for (const auto& row : table) bad += row.end_ns < row.begin_ns;
    rows += static_cast<int64_t>(table.size());
  };
  count(trace.ops());
  count(trace.runtime_calls());
  count(trace.kernels());
  count(trace.copies());
  count(trace.memsets());
  return bad;
}

Verdict CheckCaptureIncomplete(const AnalysisContext& m) {
  const Trace& trace = m.trace;
  std::string errors, warnings;
  const auto add = [](std::string& list, const std::string& text) {
    list += (list.empty() ? "" : " ") + text;
  };
  for (const Loss& loss : trace.losses()) {
    if (IsAbsence(loss) || loss.severity == Severity::kNote) continue;
    std::string text = loss.detail.empty() ? loss.name : loss.detail;
    if (!text.ends_with('.')) text += '.';
    add(loss.severity == Severity::kError || loss.name == "buffer-full"
            ? errors
            : warnings,
        text);
  }
  int64_t rows = 0;
  const int64_t bad = BadTimes(trace, rows);
  if (bad > kBadTimes * rows) {
    add(errors, Count(bad, "record") + " of " + std::to_string(rows) +
                    " have impossible times.");
  }
  if (m.ledger && m.ledger->unmatched > kUnmatched * m.ledger->activities) {
    const bool earlier = ActivitiesLaunchedBefore(trace, m.ledger->device) >=
                         kNearlyAll * m.ledger->unmatched;
    add(warnings,
        std::to_string(m.ledger->unmatched) + " of " +
            Count(m.ledger->activities, "GPU activity", "GPU activities") +
            (earlier ? " were launched before the recording began: the GPU "
                       "runs behind the host."
                     : " have no recorded launch: why the GPU was idle before "
                       "them cannot be told."));
  }
  const bool launches =
      std::ranges::any_of(trace.runtime_calls(), [&](const RuntimeCall& call) {
        return trace.name(call.name).find("Launch") != std::string_view::npos;
      });
  if (!m.has_gpu && (launches || !trace.runtime_calls().empty())) {
    add(launches ? errors : warnings,
        "The host called the GPU (" +
            Count(static_cast<int64_t>(trace.runtime_calls().size()), "call") +
            "), but no GPU activity was recorded.");
  } else if (!m.has_gpu) {
    const std::string signs = SignsOfGpu(trace);
    if (!signs.empty()) {
      add(errors, "The program works on a GPU (" + signs +
                      "), but neither calls to it nor its work were recorded: "
                      "what looks like computing here is the host's part.");
    } else if (!trace.run().devices.empty() && !trace.ops().empty()) {
      add(warnings,
          "There is a GPU (" + trace.run().devices[0].name +
              "), but no call to it was recorded: if the model runs on it, "
              "what looks like computing here is the host's part.");
    }
  }
  if (m.steps.empty()) {
    add(warnings,
        "No step marks were found, so nothing can be said per step; call "
        "Step() once per iteration.");
  }
  if (errors.empty() && warnings.empty()) return Clean();
  Finding finding =
      Status(errors.empty() ? FindingStatus::kWarning : FindingStatus::kError,
             Confidence::kProven);
  finding.evidence = errors + (errors.empty() ? "" : " ") + warnings;
  while (finding.evidence.ends_with(' ')) finding.evidence.pop_back();
  if (!errors.empty()) {
    finding.evidence += " No gains are claimed from this recording.";
  }
  const bool dropped = std::ranges::any_of(
      trace.losses(), [](const Loss& l) { return l.name == "buffer-full"; });
  if (dropped) {
    finding.fix_cpp = finding.fix_python =
        "larger max_buffer_bytes, fewer active steps, shapes and memory off";
  } else if (m.steps.empty()) {
    finding.fix_cpp = "profile.Step() once per iteration";
    finding.fix_python = "prof.step() once per iteration";
  }
  return Fire(std::move(finding));
}

Verdict CheckObserverLive(const AnalysisContext& m) {
  const std::vector<int64_t>& recorded = m.trace.run().wait_step_ns;
  std::vector<double> waits(recorded.begin(), recorded.end());
  // A device that sets the pace hides what recording costs the host; and the
  // host may have run ahead of it while it was not recorded.
  if (m.has_gpu && DeviceBusyNs(m) >= kDevicePaces * m.step_ns()) {
    return Clean();
  }
  // What the host alone can tell while nothing is recorded.
  std::vector<double> hosts;
  for (size_t i : m.steps.steady) {
    hosts.push_back(m.steps.windows[i].host.length());
  }
  const double active = Median(std::move(hosts));
  const double wait = Median(waits);
  double distortion = active / wait - 1;
  if (!m.has_gpu) {
    const RecordingLoad load = MeasureRecordingLoad(m);
    const double events = (load.events + load.allocations) /
                          static_cast<double>(m.steps.windows.size());
    distortion = std::min(distortion, events * kMostNsPerEvent / wait);
  }
  // Two medians of noisy steps differ by chance. One slow step is no noise of
  // the others, if there are enough of these.
  std::vector<double> strays;
  for (double ns : waits) strays.push_back(std::abs(ns / wait - 1));
  std::ranges::sort(strays);
  if (strays.size() >= kWaitsToLeaveOneOut) strays.pop_back();
  const double noise = std::max(strays.back(), m.stats.cov) * 2 /
                       std::sqrt(static_cast<double>(std::min<size_t>(
                           waits.size(), m.steps.steady.size())));
  if (distortion <= kDistorted + noise) return Clean();
  double ops = 0;
  for (const auto& split : m.splits) ops += split[Cause::kProfiler];
  const double ours = m.splits.empty() ? 0 : ops / m.splits.size();
  Finding finding =
      Status(distortion > kVeryDistorted + noise ? FindingStatus::kError
                                                 : FindingStatus::kWarning,
             Confidence::kProven);
  finding.evidence = "Steps took " + Milliseconds(active * 1e-6) +
                     " while recorded and " + Milliseconds(wait * 1e-6) +
                     " before, with recording off (" +
                     Percent(active / wait - 1) + " slower).";
  if (ours > 0) {
    finding.evidence += " Recording ops by itself accounts for " +
                        Milliseconds(ours * 1e-6) + " of that.";
  }
  finding.fix_cpp =
      "record_shapes, profile_memory and with_stack off; fewer "
      "active steps";
  finding.fix_python = finding.fix_cpp;
  finding.wrong_if = "something else slowed the machine down meanwhile";
  return Fire(std::move(finding));
}

Verdict CheckObserverEffect(const AnalysisContext& m) {
  const std::vector<int64_t>& waits = m.trace.run().wait_step_ns;
  if (!waits.empty() && std::ranges::min(waits) > 0)
    return CheckObserverLive(m);
  const double step = m.step_ns();
  const RecordingLoad load = MeasureRecordingLoad(m);
  const double overhead = load.overhead_ns;
  const bool dense =
      load.host_sets_pace && load.events * kNsPerOpOffline > load.host_ns;
  if (overhead <= kOverheadOffline * step && !dense) return Clean();
  Finding finding = Status(FindingStatus::kWarning, Confidence::kHint);
  finding.evidence =
      dense ? "One event per " +
                  Number(load.host_ns / std::max(load.events, 1.0) * 1e-3) +
                  " us of host time was recorded: the unprofiled step is "
                  "likely shorter."
            : "The profiler and the driver took " +
                  Milliseconds(overhead * 1e-6) + " per step for themselves (" +
                  Percent(overhead / step) + ").";
  finding.fix_cpp = "shapes, stacks and Python frames off; fewer active steps";
  finding.fix_python = finding.fix_cpp;
  return Fire(std::move(finding));
}

Verdict CheckWarmup(const AnalysisContext& m) {
  Finding finding = Status(FindingStatus::kWarning, Confidence::kStrong);
  std::string steps;
  double total = 0;
  for (const StepWindow& step : m.steps.windows) {
    total += static_cast<double>(step.tiled.length());
    if (step.kind != StepKind::kWarmUp) continue;
    steps += (steps.empty() ? "" : ", ") + std::to_string(step.number);
    if (finding.examples.size() < 3) {
      finding.examples.push_back({step.number, step.host.begin_ns,
                                  step.host.end_ns,
                                  "one-off loading or allocation for " +
                                      Milliseconds(step.one_off_ns * 1e-6)});
    }
  }
  if (steps.empty()) return Clean();
  finding.evidence =
      "Step " + steps +
      " still warmed up (loading kernels, first "
      "allocations) and " +
      (finding.examples.size() == 1 ? "is" : "are") +
      " left out: the mean is " + Milliseconds(m.stats.mean_ms) + " without, " +
      Milliseconds(total * 1e-6 / m.steps.windows.size()) + " with.";
  finding.fix_cpp = "schedule with warmup >= 3";
  finding.fix_python = "schedule(warmup=3, ...)";
  return Fire(std::move(finding));
}

constexpr Rule kRules[] = {
    {.id = "capture-incomplete",
     .question = "Is anything missing from the recording?",
     .needs_steps = false,
     .needs = {},
     .check = &CheckCaptureIncomplete,
     .reference = "stepscope: what was lost is said first",
     .detect = "an error where records were dropped or more than 0.1 % have "
               "impossible times; a warning where more than 1 % of the GPU's "
               "works have no launch or launches no work",
     .avoid = "kernels of a CUDA graph, which share one launch; what the end "
              "of the window cut off",
     .fix_cpp = "a larger max_buffer_bytes, fewer kinds of events, fewer "
                "active steps",
     .fix_python = "fewer active steps, no stacks, prof.step() in every "
                   "iteration"},
    {.id = "observer-effect",
     .question = "Did recording change what it measured?",
     .needs = {},
     .check = &CheckObserverEffect,
     .reference = "17 tips for faster training, 13: turn debugging and "
                  "profiling off",
     .detect = "recorded steps are more than 5 % longer than the wait steps "
               "before them, which were timed with everything off (an error "
               "beyond 15 %); in files, the profiler's own records above 3 % "
               "of the step, or an op in every 4 us of a host-bound run",
     .avoid =
         "wait steps that still warm up; CPU-only runs that slowed down by "
         "more than recording can cost, 3 us an event",
     .fix_cpp = "record without shapes, stacks and memory; fewer active steps",
     .fix_python = "record_shapes=False, with_stack=False, "
                   "profile_memory=False; fewer active steps"},
    {.id = "warmup-in-window",
     .question = "Were steps recorded that were still warming up?",
     .needs = {},
     .check = &CheckWarmup,
     .reference = "PyTorch Performance Features and How They Interact: first "
                  "runs",
     .detect = "a step is 1.2 times the median of the others, and loading, "
               "compiling or first allocations explain 30 % of the excess",
     .avoid = "slow steps that nothing explains: they are outliers",
     .fix_cpp = "a schedule with 3 warm-up steps or more",
     .fix_python = "schedule(wait=3, warmup=3, active=3)"}};

}  // namespace

extern const std::span<const Rule> kDataQuality = kRules;

}  // namespace stepscope
