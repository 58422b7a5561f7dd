// Analyze(): from one Trace to one Report. Every rule is asked; sizing, ranking
// and the plan make advice of the answers.
#include <stepscope/analysis.h>
#include <stepscope/page.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "context/analysis_context.h"
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
#include "evidence/stalls/stalls.h"
#include "ops/captured_place.h"
#include "steps/steady_steps.h"
#include "timeline/time_split.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// More would make the JSON of a long recording mostly a list of steps.
constexpr size_t kStepTimes = 1000;

std::vector<StepTimes> TimesOfSteps(const AnalysisContext& context) {
  std::vector<StepTimes> times;
  const std::vector<StepWindow>& windows = context.steps.windows;
  for (size_t i = 0; i < std::min(windows.size(), kStepTimes); ++i) {
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
  for (const Stall& stall : FindStalls(context).stalls) {
    if (stall.step < times.size()) times[stall.step].why = StallInWords(stall);
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
  const WholeRecording whole =
      SplitWhole(context.trace, context.tree, context.steps.thread);
  report.recording_ms = whole.span.length() * 1e-6;
  for (size_t i = 0; i < kCauses; ++i) {
    const int64_t ns = whole.split[static_cast<Cause>(i)];
    if (ns <= 0) continue;
    report.recording_split_ms[CauseKey(static_cast<Cause>(i))] = ns * 1e-6;
  }
}

// Why `rule` cannot run on this Trace; empty if it can. `accelerator` as in
// Report: the host's time alone says nothing about what limits such a run.
std::string WhyNot(const AnalysisContext& context, const Rule& rule,
                   const std::string& accelerator) {
  if (!accelerator.empty() && !IsAboutRecording(rule.id)) {
    return "the program computes on another device (" + accelerator +
           "), which was not recorded";
  }
  if (rule.runs == Runs::kGpuOnly && !context.has_gpu) {
    return "no GPU was recorded";
  }
  if (rule.runs == Runs::kCpuOnly && context.has_gpu) {
    return "applies only to runs without a GPU";
  }
  if (rule.needs_steps && context.steps.empty()) {
    return "no steps were found: call Step() once per iteration, or "
           "prof.step() in Python";
  }
  for (Kind kind : rule.needs) {
    if (!context.trace.watched(kind)) {
      return std::string("no ") + KindName(kind) + " events were recorded";
    }
  }
  return "";
}

// One rule from beginning to end: can it run on this trace, what does it find,
// and how much time would that save. A rule whose findings are all dropped by
// sizing counts as clean.
void RunRule(const AnalysisContext& context, const Rule& rule, Report& report,
             std::vector<SizedFinding>& findings) {
  std::string why = WhyNot(context, rule, report.accelerator);
  std::vector<SizedFinding> sized;
  if (why.empty()) {
    try {
      Verdict verdict = rule.check(context);
      why = std::move(verdict.skipped);
      for (Found& found : verdict.found) {
        std::optional<SizedFinding> one = Size(context, std::move(found));
        if (one) sized.push_back(*std::move(one));
      }
    } catch (const std::exception& error) {
      // One rule's failure never silences another.
      why = std::string("the rule failed: ") + error.what();
    }
  }
  if (!why.empty()) {
    report.skipped.push_back({rule.id, why});
    return;
  }
  if (sized.empty()) report.clean.push_back(rule.id);
  for (SizedFinding& one : sized) {
    one.finding.id = rule.id;
    one.finding.reference = rule.reference;
    findings.push_back(std::move(one));
  }
}

}  // namespace

std::vector<TopOp> OpsByTime(const AnalysisContext& context) {
  const Trace& trace = context.trace;
  const std::span<const Op> ops = trace.ops();
  const Steps& steps = context.steps;
  std::vector<bool> counted(ops.size(), steps.empty());
  for (size_t i : steps.steady) {
    const Span& host = steps.windows[i].host;
    auto first =
        std::ranges::lower_bound(ops, host.begin_ns, {}, &Op::begin_ns);
    for (; first != ops.end() && first->begin_ns < host.end_ns; ++first) {
      counted[static_cast<size_t>(first - ops.begin())] = true;
    }
  }
  struct Sum {
    int64_t self_ns = 0, total_ns = 0, gpu_ns = 0, calls = 0;
  };
  // Threads that do the training; the others' ops have rows of their own.
  std::vector<bool> trains(trace.threads().size(), steps.thread == kNone);
  if (steps.thread != kNone) trains[steps.thread] = true;
  for (RowId thread : AutogradThreads(trace, steps.thread)) {
    trains[thread] = true;
  }
  const auto elsewhere = [&](const Op& op) {
    return op.thread != kNone && !trains[op.thread];
  };
  std::map<std::pair<NameId, bool>, Sum> sums;
  for (RowId row = 0; row < ops.size(); ++row) {
    if (!counted[row]) continue;
    const Op& op = ops[row];
    const int64_t ns = op.end_ns - op.begin_ns;
    Sum& sum = sums[{op.name, elsewhere(op)}];
    sum.self_ns += ns;
    ++sum.calls;
    // A total counts nested calls of one name once: the outer call contains
    // them.
    if (op.parent == kNone || ops[op.parent].name != op.name) {
      sum.total_ns += ns;
    }
    // Self time is what no nested op takes. A child that outlasts its parent,
    // as in rounded files, takes only what lies inside.
    if (op.parent != kNone && counted[op.parent]) {
      const Op& parent = ops[op.parent];
      sums[{parent.name, elsewhere(parent)}].self_ns -= std::max<int64_t>(
          0, std::min(op.end_ns, parent.end_ns) - op.begin_ns);
    }
  }
  const auto add = [&](const DeviceWork& work) {
    if (work.op == kNone || !counted[work.op]) return;
    const Op& op = ops[work.op];
    sums[{op.name, elsewhere(op)}].gpu_ns += work.end_ns - work.begin_ns;
  };
  for (const Kernel& row : trace.kernels()) {
    const std::span<const NameId> captured = CapturedOps(trace, row);
    if (captured.empty()) {
      add(row);
    } else if (steps.empty() || InSteadyStep(steps, AskedForNs(trace, row))) {
      sums[{captured.front(), false}].gpu_ns += row.end_ns - row.begin_ns;
    }
  }
  for (const Copy& row : trace.copies()) add(row);
  for (const Memset& row : trace.memsets()) add(row);
  const double steps_count = std::max<size_t>(steps.steady.size(), 1);
  std::vector<TopOp> top;
  for (const auto& [key, sum] : sums) {
    top.push_back({.name = std::string(trace.name(key.first)),
                   .other_thread = key.second,
                   .self_ms_per_step =
                       std::max<int64_t>(sum.self_ns, 0) * 1e-6 / steps_count,
                   .total_ms_per_step = sum.total_ns * 1e-6 / steps_count,
                   .gpu_self_ms_per_step = sum.gpu_ns * 1e-6 / steps_count,
                   .calls_per_step = sum.calls / steps_count});
  }
  SortOps(top, context.has_gpu);
  return top;
}

void SortOps(std::vector<TopOp>& ops, bool has_gpu) {
  const auto key = [&](const TopOp& op) {
    return std::tuple(has_gpu ? -op.gpu_self_ms_per_step : 0.0,
                      -op.self_ms_per_step, std::string_view(op.name),
                      op.other_thread);
  };
  std::ranges::sort(ops, {}, key);
}

Report Analyze(const Trace& trace) { return Analyze(trace, nullptr); }

Report Analyze(const Trace& trace, PageDetails* details) {
  const AnalysisContext context(trace);
  Report report = ReportOf(context);
  if (details != nullptr) *details = DrawDetails(context, report);
  return report;
}

// The order is the flow of the analysis: what was recorded, where the time
// goes, what the rules find, how findings compare, what to do first, what stays
// unexplained.
Report ReportOf(const AnalysisContext& context, EditsById* edits) {
  const Trace& trace = context.trace;
  Report report;
  report.run = trace.run();
  report.has_gpu = context.has_gpu;
  report.accelerator = UnseenAccelerator(trace);
  report.devices_used = DevicesUsed(trace);
  report.steps = context.stats;
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
  if (context.steps.empty()) AddWhole(context, report);
  report.memory = MemoryOf(trace);

  std::vector<SizedFinding> found;
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) RunRule(context, rule, report, found);
  }
  // Ranking drops findings, and the plan may only name those that are left.
  Rank(context, found, report.superseded);
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
  report.top_ops = OpsByTime(context);
  if (report.top_ops.size() > kTopOps) report.top_ops.resize(kTopOps);
  report.modules = TimeByModule(context);
  report.lines = TimeByLine(context);
  const std::vector<PathPiece> path = context.CriticalPath();
  const Steps& replayed = context.replayed.steps;
  report.critical_path = SumPath(trace, replayed, path);
  report.path_split_ms = SplitPath(replayed, path);
  report.path_slices = DrawPath(trace, replayed, path);
  // Last: whether a cause is answered depends on the findings that were kept.
  ExplainCauses(report);
  OrderPlan(report);
  return report;
}

}  // namespace stepscope
