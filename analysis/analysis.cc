#include <stepscope/analysis.h>

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <span>
#include <string>

#include "changes.h"
#include "measured.h"
#include "plan.h"
#include "ranking.h"
#include "report_of.h"
#include "rule.h"
#include "rule_families.h"
#include "time_split.h"
#include "whole_recording.h"

namespace stepscope {
namespace {

constexpr size_t kTopOps = 50;
constexpr size_t kStepTimes = 1000;

std::vector<StepTimes> TimesOfSteps(const Measured& measured) {
  std::vector<StepTimes> times;
  const std::vector<StepWindow>& windows = measured.steps.windows;
  for (size_t i = 0; i < std::min(windows.size(), kStepTimes); ++i) {
    StepTimes step{.number = windows[i].number,
                   .kind = StepKindName(windows[i].kind),
                   .ms = windows[i].tiled.length() * 1e-6};
    for (size_t cause = 0; cause < kCauses; ++cause) {
      const int64_t ns = measured.splits[i][static_cast<Cause>(cause)];
      if (ns <= 0) continue;
      step.time_split_ms[CauseKey(static_cast<Cause>(cause))] = ns * 1e-6;
    }
    times.push_back(std::move(step));
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

void AddWhole(const Measured& measured, Report& report) {
  const WholeRecording whole =
      SplitWhole(measured.trace, measured.tree, measured.steps.thread);
  report.recording_ms = whole.span.length() * 1e-6;
  for (size_t i = 0; i < kCauses; ++i) {
    const int64_t ns = whole.split[static_cast<Cause>(i)];
    if (ns <= 0) continue;
    report.recording_split_ms[CauseKey(static_cast<Cause>(i))] = ns * 1e-6;
  }
}

// Why a rule cannot look at this Trace at all; empty if it can.
std::string WhyNot(const Measured& measured, const Rule& rule) {
  if (rule.runs == Runs::kGpuOnly && !measured.has_gpu) {
    return "no GPU was recorded";
  }
  if (rule.runs == Runs::kCpuOnly && measured.has_gpu) {
    return "asked of runs without a GPU only";
  }
  if (rule.needs_steps && measured.steps.empty()) {
    return "no steps were found: call Step() once per iteration, or "
           "prof.step() in Python";
  }
  for (Kind kind : rule.needs) {
    if (!measured.trace.watched(kind)) {
      return std::string("no ") + KindName(kind) + " events were recorded";
    }
  }
  return "";
}

void Ask(const Measured& measured, const Rule& rule, Report& report,
         std::vector<Found>& found) {
  std::string why = WhyNot(measured, rule);
  Verdict verdict;
  if (why.empty()) {
    try {
      verdict = rule.check(measured);
      why = verdict.could_not_look;
    } catch (const std::exception& error) {
      // One rule's failure never silences another.
      why = std::string("the rule failed: ") + error.what();
      verdict.found.clear();
    }
  }
  if (!why.empty()) {
    report.could_not_look.push_back({rule.id, why});
    return;
  }
  if (verdict.found.empty()) report.clean.push_back(rule.id);
  for (Found& entry : verdict.found) {
    entry.finding.id = rule.id;
    entry.finding.reference = rule.reference;
    found.push_back(std::move(entry));
  }
}

}  // namespace

std::vector<TopOp> OpsByOwnTime(const Measured& measured) {
  const Trace& trace = measured.trace;
  const std::span<const Op> ops = trace.ops();
  const Steps& steps = measured.steps;
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
    int64_t self_ns = 0, total_ns = 0, calls = 0;
  };
  std::map<NameId, Sum> sums;
  for (RowId row = 0; row < ops.size(); ++row) {
    if (!counted[row]) continue;
    const Op& op = ops[row];
    const int64_t ns = op.end_ns - op.begin_ns;
    Sum& sum = sums[op.name];
    sum.self_ns += ns;
    ++sum.calls;
    if (op.parent == kNone || ops[op.parent].name != op.name) {
      sum.total_ns += ns;
    }
    if (op.parent != kNone && counted[op.parent]) {
      const Op& parent = ops[op.parent];
      sums[parent.name].self_ns -= std::max<int64_t>(
          0, std::min(op.end_ns, parent.end_ns) - op.begin_ns);
    }
  }
  const double steps_count = std::max<size_t>(steps.steady.size(), 1);
  std::vector<TopOp> top;
  for (const auto& [name, sum] : sums) {
    top.push_back({.name = std::string(trace.name(name)),
                   .self_ms_per_step =
                       std::max<int64_t>(sum.self_ns, 0) * 1e-6 / steps_count,
                   .total_ms_per_step = sum.total_ns * 1e-6 / steps_count,
                   .calls_per_step = sum.calls / steps_count});
  }
  std::ranges::sort(top, [](const TopOp& a, const TopOp& b) {
    return a.self_ms_per_step != b.self_ms_per_step
               ? a.self_ms_per_step > b.self_ms_per_step
               : a.name < b.name;
  });
  return top;
}

Report Analyze(const Trace& trace) { return ReportOf(Measured(trace)); }

Report ReportOf(const Measured& measured, EditsById* edits) {
  const Trace& trace = measured.trace;
  Report report;
  report.run = trace.run();
  report.has_gpu = measured.has_gpu;
  report.devices_used = DevicesUsed(trace);
  report.steps = measured.stats;
  report.losses.assign(trace.losses().begin(), trace.losses().end());
  report.replay = measured.replay.check();
  report.replay.steps =
      static_cast<int64_t>(measured.replayed.steps.steady.size());
  if (measured.steps.empty()) {
    report.replay.why_not = "no steps were found";
  }
  for (size_t i = 0; i < kCauses && !measured.steps.empty(); ++i) {
    const double ns = measured.MeanNs(static_cast<Cause>(i));
    if (ns > 0) {
      const char* key = CauseKey(static_cast<Cause>(i));
      report.time_split_ms[key] = ns * 1e-6;
      report.time_split_spread_ms[key] =
          measured.SpreadMs(static_cast<Cause>(i));
    }
  }
  report.phases_ms = SplitByPhase(trace, measured.tree, measured.steps);

  report.step_times = TimesOfSteps(measured);
  if (measured.steps.empty()) AddWhole(measured, report);
  report.memory = MemoryOf(trace);

  std::vector<Found> found;
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) Ask(measured, rule, report, found);
  }
  Rank(measured, found, report.muted);
  report.plan = MakePlan(measured, found);
  for (Found& entry : found) {
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
  std::ranges::sort(report.could_not_look, {}, &CouldNotLook::id);
  report.top_ops = OpsByOwnTime(measured);
  if (report.top_ops.size() > kTopOps) report.top_ops.resize(kTopOps);
  const std::vector<PathPiece> path = measured.CriticalPath();
  const Steps& replayed = measured.replayed.steps;
  report.critical_path = SumPath(trace, replayed, path);
  report.path_slices = DrawPath(trace, replayed, path);
  return report;
}

}  // namespace stepscope
