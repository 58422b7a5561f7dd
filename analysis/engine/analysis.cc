// Analyze(): from one Trace to one Report. Runs every rule; sizing, ranking and
// the plan turn the answers into advice.
#include <stepscope/analysis.h>
#include <stepscope/page.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "context/analysis_context.h"
#include "context/noise.h"
#include "context/rule.h"
#include "device/whole_recording.h"
#include "drawing/page_details.h"
#include "engine/coverage.h"
#include "engine/edit_settings.h"
#include "engine/plan.h"
#include "engine/ranking.h"
#include "engine/report_of.h"
#include "engine/rule_families.h"
#include "engine/sizing.h"
#include "engine/time_by_place.h"
#include "evidence/missing_rows.h"
#include "evidence/stalls/stall_sum.h"
#include "ops/contains.h"
#include "timeline/time_split.h"
#include "timeline/timeline.h"
#include "words/labels.h"

namespace stepscope {
namespace {

// With the recorder's cost below a fifth of the step, a wrong estimate of it
// hides little.
constexpr double kDistorted = 0.8;

// With more steps, the JSON of a long recording would be mostly a list of
// steps. If there are more, the last of the list are the first slow ones among
// the rest.
constexpr size_t kStepTimes = 1000;
constexpr size_t kSlowSteps = 100;

std::vector<StepTimes> TimesOfSteps(const AnalysisContext& context) {
  std::vector<StepTimes> times;
  const std::vector<StepWindow>& windows = context.steps.windows;
  std::set<size_t> slow;
  for (const Stall& stall : context.stalls.stalls) slow.insert(stall.step);
  const size_t all =
      windows.size() <= kStepTimes ? windows.size() : kStepTimes - kSlowSteps;
  std::map<size_t, size_t> place;  // by index of the step
  for (size_t i = 0; i < windows.size() && times.size() < kStepTimes; ++i) {
    if (i >= all && windows[i].kind == StepKind::kSteady && !slow.contains(i)) {
      continue;
    }
    place[i] = times.size();
    StepTimes step{.number = windows[i].number,
                   .kind = StepKindName(windows[i].kind),
                   .ms = windows[i].tiled.length() * 1e-6};
    for (size_t cause = 0; cause < kCauses; ++cause) {
      const int64_t ns = context.splits[i][static_cast<Cause>(cause)];
      if (ns <= 0) continue;
      step.time_split_ms[CauseKey(static_cast<Cause>(cause))] = ns * 1e-6;
    }
    times.push_back(std::move(step));
  }
  for (const Stall& stall : context.stalls.stalls) {
    const auto at = place.find(stall.step);
    if (at != place.end()) times[at->second].why = StallInWords(stall);
  }
  return times;
}

int64_t DevicesUsed(const Trace& trace) {
  std::set<int32_t> devices;
  for (const Kernel& row : trace.kernels()) devices.insert(row.device);
  for (const Copy& row : trace.copies()) devices.insert(row.device);
  for (const Memset& row : trace.memsets()) devices.insert(row.device);
  return static_cast<int64_t>(devices.size());
}

// For a recording without steps: adds its length and how it splits into causes.
void AddWhole(const AnalysisContext& context, Report& report) {
  const Steps& steps = context.steps;
  const WholeRecording whole =
      steps.is_recording
          ? WholeRecording{steps.windows[0].tiled, context.splits[0]}
          : SplitWhole(context.trace, context.tree, steps.thread);
  report.recording_ms = whole.span.length() * 1e-6;
  for (size_t i = 0; i < kCauses; ++i) {
    const int64_t ns = whole.split[static_cast<Cause>(i)];
    if (ns <= 0) continue;
    report.recording_split_ms[CauseKey(static_cast<Cause>(i))] = ns * 1e-6;
  }
}

// Returns "skipped" with the reason if `rule` cannot run on this Trace, else
// "clean". With an `accelerator` (as in Report), most rules are skipped,
// because the host's time alone does not show what limits such a run.
Verdict Applies(const AnalysisContext& context, const Rule& rule,
                const std::string& accelerator) {
  if (!accelerator.empty() && !IsAboutRecording(rule.id)) {
    return Skip("the program computes on another device (" + accelerator +
                "), which was not recorded");
  }
  if (rule.runs == Runs::kGpuOnly && !context.has_gpu) {
    return SkipElsewhere("no GPU was recorded");
  }
  if (rule.runs == Runs::kCpuOnly && context.has_gpu) {
    return SkipElsewhere("applies only to runs without a GPU");
  }
  if (rule.needs_steps && context.steps.empty()) {
    return Skip(
        "no steps were found, and much of the recording is start-up or on "
        "threads that cannot be told apart: call Step() once per iteration, or "
        "prof.step() in Python");
  }
  for (Kind kind : rule.needs) {
    if (!context.trace.watched(kind)) {
      return Skip(std::string("no ") + KindName(kind) +
                  " events were recorded");
    }
  }
  return Clean();
}

// Runs one rule from start to end: whether it can run on this trace, what it
// finds, and how much time that would save. A rule whose findings are all
// dropped by sizing counts as clean.
void RunRule(const AnalysisContext& context, const Rule& rule, Report& report,
             std::vector<SizedFinding>& findings) {
  Verdict verdict = Applies(context, rule, report.accelerator);
  std::vector<SizedFinding> sized;
  if (verdict.skipped.empty()) {
    try {
      verdict = rule.check(context);
      for (Found& found : verdict.found) {
        std::optional<SizedFinding> one = Size(context, std::move(found));
        if (one) sized.push_back(*std::move(one));
      }
    } catch (const std::exception& error) {
      // A rule that fails must not keep the others from running.
      verdict = Skip(std::string("the rule failed: ") + error.what());
    }
  }
  if (!verdict.skipped.empty()) {
    report.skipped.push_back({.id = rule.id,
                              .why = std::move(verdict.skipped),
                              .elsewhere = verdict.elsewhere});
    return;
  }
  if (sized.empty()) report.clean.push_back(rule.id);
  for (SizedFinding& one : sized) {
    one.finding.id = rule.id;
    one.finding.reference = rule.reference;
    findings.push_back(std::move(one));
  }
}

// Rules about the pace of the whole step, in which the recorder's cost is the
// larger part of what they would find.
bool IsAboutPace(std::string_view rule) {
  return IsAnyOf(rule,
                 {"cuda-graph-obstacles", "launch-bound", "python-between-ops",
                  "small-batch", "unfused-pointwise"});
}

// The recorder's cost on a run with a GPU is an estimate (recorder_cost.h). If
// it is too high, the GPU seems to set the pace of a step that the host limits,
// and what costs host time seems to cost nothing. Adds findings that are clear
// in the step as recorded, as hints.
void AddAsRecorded(const AnalysisContext& context, Report& report,
                   std::vector<SizedFinding>& found) {
  const StepStats& stats = context.stats;
  if (!context.has_gpu || !context.recorder.estimated ||
      stats.unprofiled_ms <= 0 ||
      stats.unprofiled_ms > kDistorted * stats.mean_ms) {
    return;
  }
  const AnalysisContext recorded(context.trace, /*as_recorded=*/true);
  std::vector<SizedFinding> others;
  Report ignored;
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) {
      if (!IsAboutPace(rule.id)) RunRule(recorded, rule, ignored, others);
    }
  }
  Rank(recorded, others, ignored.superseded);
  for (SizedFinding& one : others) {
    Finding& finding = one.finding;
    const auto known = std::ranges::find_if(found, [&](const SizedFinding& f) {
      return f.finding.id == finding.id;
    });
    if (finding.severity < FindingSeverity::kHigh || IsNote(finding) ||
        (known != found.end() && !IsNote(known->finding))) {
      continue;
    }
    if (known != found.end()) found.erase(known);
    std::erase(report.clean, finding.id);
    finding.confidence = Confidence::kHint;
    finding.severity = FindingSeverity::kMedium;
    finding.gain_kind = GainKind::kBound;
    finding.gain = {.expected_ms = finding.gain.expected_ms,
                    .high_ms = finding.gain.expected_ms};
    finding.baseline_ms = stats.mean_ms;
    finding.evidence +=
        " These are times as recorded. How much of them is left without the "
        "profiler is not known: its cost is an estimate, after which the GPU "
        "sets the pace.";
    one.edits.clear();
    one.at_most = FindingSeverity::kMedium;
    found.push_back(std::move(one));
  }
  SortByRank(found);
}

}  // namespace

Report Analyze(const Trace& trace) { return Analyze(trace, nullptr); }

Report Analyze(const Trace& trace, PageDetails* details) {
  const AnalysisContext context(trace);
  Report report = ReportOf(context);
  if (details != nullptr) *details = DrawDetails(context, report);
  return report;
}

// The steps of the analysis in order: what was recorded, where the time goes,
// what the rules find, how findings compare, what to do first, what stays
// unexplained.
Report ReportOf(const AnalysisContext& context, EditsById* edits) {
  const Trace& trace = context.trace;
  Report report;
  report.run = trace.run();
  report.has_gpu = context.has_gpu;
  report.accelerator = UnseenAccelerator(trace);
  report.devices_used = DevicesUsed(trace);
  report.steps = context.stats;
  if (!context.steps.empty()) {
    report.steps.smallest_gain_ms = MinReportableGainMs(context);
  }
  report.losses.assign(trace.losses().begin(), trace.losses().end());
  report.replay = context.replay.check();
  report.replay.steps =
      static_cast<int64_t>(context.replayed.steps.steady.size());
  if (context.steps.empty()) {
    report.replay.why_not = "no steps were found";
  }
  for (size_t i = 0; i < kCauses && !context.steps.empty(); ++i) {
    const double ns = context.MeanNs(static_cast<Cause>(i));
    if (ns > 0) {
      const char* key = CauseKey(static_cast<Cause>(i));
      report.time_split_ms[key] = ns * 1e-6;
      report.time_split_spread_ms[key] =
          context.SpreadMs(static_cast<Cause>(i));
    }
  }
  report.phases_ms = SplitByPhase(trace, context.tree, context.steps);

  report.step_times = TimesOfSteps(context);
  if (context.stats.count == 0) AddWhole(context, report);
  report.memory = MemoryOf(trace);

  std::vector<SizedFinding> found;
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) RunRule(context, rule, report, found);
  }
  // Before the plan: ranking drops findings, and the plan may name only those
  // that are left.
  Rank(context, found, report.superseded);
  AddAsRecorded(context, report, found);
  report.plan = MakePlan(context, found);
  RaisePlanned(report.plan, found);
  for (SizedFinding& entry : found) {
    const Edit& first = entry.edits.empty() ? Edit() : entry.edits.front();
    Finding& finding = entry.finding;
    for (Setting& setting : SettingsOf(first, BatchSize(trace))) {
      finding.settings.push_back(std::move(setting));
    }
    if (edits != nullptr) {
      edits->emplace(entry.finding.id, std::move(entry.edits));
    }
    report.findings.push_back(std::move(entry.finding));
  }
  std::ranges::sort(report.clean);
  std::ranges::sort(report.skipped, {}, &SkippedRule::id);
  const OpTimes times = TimesOf(context);
  report.top_ops = OpsByTime(context, times);
  if (report.top_ops.size() > kTopOps) report.top_ops.resize(kTopOps);
  report.modules = TimeByModule(context, times);
  report.lines = TimeByLine(context, times);
  const std::vector<PathPiece> path = context.CriticalPath();
  const Steps& replayed = context.replayed.steps;
  report.critical_path = SumPath(trace, replayed, path);
  report.path_split_ms = SplitPath(replayed, path);
  report.path_slices = DrawPath(trace, replayed, path);
  // After ranking, because whether a cause is answered depends on the findings
  // that were kept.
  ExplainCauses(report);
  OrderPlan(report);
  return report;
}

}  // namespace stepscope
