// Compare(): compares two traces, recorded before and after a change: what was
// measured, and what replaying the first trace with that change predicts.
#include <stepscope/compare.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "engine/compare_programs.h"
#include "engine/compare_tables.h"
#include "engine/edit_settings.h"
#include "engine/report_of.h"
#include "engine/sizing.h"
#include "evidence/host_copies.h"
#include "evidence/optimizer_work.h"
#include "ops/op_arguments.h"
#include "replay/model/loader.h"
#include "steps/step_window.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// With more resamples, the interval would change by less than its rounding.
constexpr int kResamples = 2000;

// Two runs of one program share at least this much of their op time.
constexpr double kSameProgramFrac = 0.5;
// If a finding has lost more than this share of its gain, its advice counts as
// followed.
constexpr double kMostOfGain = 0.5;
// CUDA graphs and compiled models make far fewer launches than this.
constexpr double kMostLaunches = 0.5;

// With fewer slow steps, whether they recur is not known.
constexpr int64_t kRecurring = 2;

// True if some steps take longer for a reason of the program that comes again,
// or because only they update the parameters.
bool SlowStepsRecur(const AnalysisContext& context) {
  const auto recurs = [&](const Stall& stall) {
    switch (stall.kind) {
      case StallKind::kGarbage:
      case StallKind::kLoading:
      case StallKind::kOwnWork:
      case StallKind::kSaving:
      case StallKind::kValidation:
        return context.steps.windows[stall.step].kind != StepKind::kSteady;
      default:
        return false;
    }
  };
  return !context.steps.rare_updates.empty() ||
         std::ranges::count_if(context.stalls.stalls, recurs) >= kRecurring;
}

// The lengths of the steady steps; with `slow`, of all but warm-up. Then the
// steps from one update to the next count as their mean, if gradients
// accumulate.
std::vector<double> StepsMs(const AnalysisContext& context, bool slow) {
  const Steps& steps = context.steps;
  const auto length = [&](size_t i) {
    return steps.windows[i].tiled.length() * 1e-6;
  };
  std::vector<double> ms;
  if (!slow) {
    for (size_t i : steps.steady) ms.push_back(length(i));
    return ms;
  }
  std::vector<double> cycle;
  bool begun = false;  // the first cycle may have begun before the recording
  for (size_t i = 0; i < steps.windows.size(); ++i) {
    if (steps.windows[i].kind == StepKind::kWarmUp) continue;
    if (steps.rare_updates.empty()) {
      ms.push_back(length(i));
      continue;
    }
    if (begun) cycle.push_back(length(i));
    if (!steps.rare_updates[i]) continue;
    if (begun) ms.push_back(Mean(cycle));
    cycle.clear();
    begun = true;
  }
  if (!ms.empty()) return ms;
  return StepsMs(context, false);  // less than a cycle
}

// Uses only steady steps, as the report of each run does, but for step_ms.
StepSpread SpreadOf(const AnalysisContext& context, bool slow) {
  const std::vector<double> ms = StepsMs(context, false);
  StepSpread spread;
  spread.mean_ms = context.stats.mean_ms;
  if (context.stats.count == 0) return spread;
  spread.steps = static_cast<int64_t>(ms.size());
  spread.median_ms = Median(ms);
  spread.step_ms = slow ? Mean(StepsMs(context, true)) : spread.median_ms;
  spread.min_ms = std::ranges::min(ms);
  spread.max_ms = std::ranges::max(ms);
  spread.batch_size = BatchSize(context.trace);
  if (context.stats.unprofiled_ms > 0) {
    spread.recording_ms = spread.mean_ms - context.stats.unprofiled_ms;
    spread.recording_estimated = context.stats.cost_estimated;
  }
  return spread;
}

// Returns the difference of the medians, or with `means` of the means, with its
// 95 % bootstrap interval. The seed is fixed, so the same traces give the same
// interval. Medians are used so that single slow steps do not dominate, and
// bootstrap because step times follow no known distribution.
Gain Difference(const std::vector<double>& before, std::vector<double> after,
                double scale, bool means) {
  const auto middle = [&](std::vector<double> values) {
    return means ? Mean(values) : Median(std::move(values));
  };
  for (double& ms : after) ms *= scale;
  std::mt19937 random(1);
  const auto redraw = [&](const std::vector<double>& from) {
    std::uniform_int_distribution<size_t> any(0, from.size() - 1);
    std::vector<double> drawn;
    for (size_t i = 0; i < from.size(); ++i) drawn.push_back(from[any(random)]);
    return middle(std::move(drawn));
  };
  std::vector<double> differences;
  for (int i = 0; i < kResamples; ++i) {
    const double one = redraw(before);
    differences.push_back(one - redraw(after));
  }
  std::ranges::sort(differences);
  Gain gain;
  gain.expected_ms = middle(before) - middle(after);
  // Leaves out 2000 / 40 = 50 differences (2.5 %) on either side.
  gain.low_ms = differences[kResamples / 40];
  gain.high_ms = differences[kResamples - 1 - kResamples / 40];
  return gain;
}

bool HasGain(const Finding& finding) {
  return !IsNote(finding) && finding.gain_kind != GainKind::kNone &&
         finding.gain.expected_ms > 0;
}

const Finding* FindingWithGain(const Report& report, const std::string& id) {
  for (const Finding& finding : report.findings) {
    if (finding.id == id && HasGain(finding)) return &finding;
  }
  return nullptr;
}

// Sorts the findings with a gain into resolved, remaining and new ones. A
// finding is gone if its advice was followed, or if another change removed its
// cause.
void CompareFindings(const Report& first, const Report& second,
                     Comparison& comparison) {
  for (const Finding& finding : first.findings) {
    if (!HasGain(finding)) continue;
    // Other programs on the cores are not the program's to change.
    const bool is_change = finding.id != "contended-cores";
    // A finding that is still there with a smaller gain was not resolved.
    const bool still_there =
        std::ranges::count(second.findings, finding.id, &Finding::id) > 0;
    if (!still_there && is_change) {
      comparison.resolved_findings.push_back(finding.id);
      continue;
    }
    const Finding* left = FindingWithGain(second, finding.id);
    if (left != nullptr) comparison.remaining_findings.push_back(finding.id);
    const double left_ms = left == nullptr ? 0 : left->gain.expected_ms;
    if (comparison.batch_scale * left_ms <
            kMostOfGain * finding.gain.expected_ms &&
        is_change)
      comparison.reduced_findings.push_back(finding.id);
  }
  for (const Finding& finding : second.findings) {
    if (HasGain(finding) && FindingWithGain(first, finding.id) == nullptr) {
      comparison.new_findings.push_back(finding.id);
    }
  }
}

// The settings of the second run, as far as replay can express them: with a
// GPU, only the number of workers.
std::vector<Setting> SettingsIn(const AnalysisContext& after) {
  std::vector<Setting> settings;
  const auto set = [&](const char* key, auto value) {
    settings.push_back({key, value});
  };
  if (const int workers = LoaderWorkers(after.trace); workers >= 0) {
    set("workers", int64_t{workers});
  }
  if (after.has_gpu) return settings;
  if (const int threads = after.replay.program().threads; threads > 0) {
    set("intra_op_threads", int64_t{threads});
  }
  if (after.parts.zero_grad.zeroing.empty()) set("set_to_none", true);
  if (HasChannelsLastWeights(after.trace)) {
    set("memory_format", std::string("channels_last"));
  }
  if (MeasureOptimizer(after).fused) {
    set("optimizer_step", std::string("fused"));
  }
  if (after.parts.unused_graphs.empty()) set("validation_gradients", false);
  return settings;
}

// The settings of the second run that differ from the first, as one edit.
// `batch_ratio` is the result of BatchRatio().
Edit SettingsThatDiffer(const AnalysisContext& before,
                        const AnalysisContext& after, double batch_ratio) {
  Edit all;
  std::vector<Setting> settings = SettingsIn(after);
  settings.push_back({"batch_factor", batch_ratio});
  for (const Setting& setting : settings) {
    const std::optional<Edit> edit = EditOf(before, setting);
    if (edit) all = Combine(std::move(all), *edit);
  }
  return all;
}

// True if the advised settings are known and did not change. Then the finding
// is gone because of another change, and its advice was not followed. The
// settings are often unknown, because most files do not say how many workers or
// threads a run had.
bool WasNotFollowed(const Edit& advised, const Edit& settings,
                    const AnalysisContext& after) {
  struct Field {
    bool advised, changed, known;
  };
  const Field fields[] = {
      {advised.workers >= 0, settings.workers >= 0,
       LoaderWorkers(after.trace) >= 0},
      {advised.threads > 0, settings.threads > 0,
       after.replay.program().threads > 0},
      {advised.batch != 1, settings.batch != 1, BatchSize(after.trace) > 0},
      {advised.fused_update >= 0, settings.fused_update >= 0, true}};
  bool unchanged = false;
  for (const Field& field : fields) {
    if (!field.advised) continue;
    if (field.changed || !field.known) return false;
    unchanged = true;
  }
  return unchanged;
}

double UploadedBytes(const AnalysisContext& context) {
  return SumHostCopies(context, FindHostCopies(context, Direction::kToDevice),
                       [](const HostCopy&) { return true; })
      .bytes;
}

// True if the second run still has what the finding is about, although another
// change has left too little to gain from it.
bool IsUnchanged(const std::string& id, const AnalysisContext& before,
                 const AnalysisContext& after, double batch_scale) {
  // As bytes, images have a quarter of the size or less.
  if (id == "h2d-fp32-input") {
    return UploadedBytes(after) * batch_scale > UploadedBytes(before) / 2;
  }
  if (id == "unfused-optimizer") return !MeasureOptimizer(after).grouped;
  if (id == "foreach-not-fused") return !MeasureOptimizer(after).fused;
  if (id == "launch-bound") {
    return after.CallsPerStep() > kMostLaunches * before.CallsPerStep();
  }
  return false;
}

// Sets the prediction to the sum of the gains, because each finding's gain was
// predicted by itself.
void SumGains(const std::vector<const Finding*>& followed,
              Comparison& comparison) {
  Gain& sum = comparison.predicted;
  int64_t pairs = std::numeric_limits<int64_t>::max();
  for (const Finding* finding : followed) {
    const Gain& gain = finding->gain;
    if (finding->gain_kind == GainKind::kBound) {
      comparison.predicted_kind = GainKind::kBound;
    }
    sum.expected_ms += gain.expected_ms;
    sum.low_ms += gain.low_ms;
    sum.high_ms += gain.high_ms;
    pairs = std::min(pairs, gain.pairs);
  }
  if (!followed.empty()) sum.pairs = pairs;
  if (comparison.predicted_kind != GainKind::kBound || followed.size() < 2) {
    return;
  }
  for (const Finding* finding : followed) {
    comparison.predicted_parts.push_back(
        {finding->id, finding->gain_kind, finding->gain.expected_ms});
  }
}

// Limits the gain to the step. Bounds of several changes may add up to more
// than the step, and gains may refer to the mean step, while medians are
// compared.
void LimitToStep(double step_ms, Gain& gain) {
  gain.expected_ms = std::min(gain.expected_ms, step_ms);
  gain.low_ms = std::min(gain.low_ms, step_ms);
  gain.high_ms = std::min(gain.high_ms, step_ms);
}

// Predicts the gain of all changes together: by one replay of all of them if
// replay is valid, else by the sum of the findings' gains or bounds.
void Predict(const AnalysisContext& before, const AnalysisContext& after,
             double batch_ratio, const Report& report, const EditsById& edits,
             Comparison& comparison) {
  const Edit settings = SettingsThatDiffer(before, after, batch_ratio);
  const auto still_there = [&](const std::string& id) {
    if (before.has_gpu) {
      return IsUnchanged(id, before, after, comparison.batch_scale);
    }
    const auto known = edits.find(id);
    return known != edits.end() && !known->second.empty() &&
           WasNotFollowed(known->second.front(), settings, after);
  };
  for (auto* ids :
       {&comparison.resolved_findings, &comparison.reduced_findings}) {
    std::erase_if(*ids, [&](const std::string& id) {
      if (!still_there(id)) return false;
      std::vector<std::string>& remaining = comparison.remaining_findings;
      if (std::ranges::count(remaining, id) == 0) remaining.push_back(id);
      return true;
    });
  }
  std::vector<const Finding*> followed;
  Edit all;
  for (const auto* ids :
       {&comparison.resolved_findings, &comparison.reduced_findings}) {
    for (const std::string& id : *ids) {
      followed.push_back(FindingWithGain(report, id));
      const auto known = edits.find(id);
      if (known != edits.end() && !known->second.empty()) {
        all = Combine(std::move(all), known->second.front());
      }
    }
  }
  SumGains(followed, comparison);
  comparison.changed_settings = ChangesInWords(settings);
  // With a GPU, settings alone are not enough to predict a gain, because most
  // changes are expressed only in the findings' edits.
  const bool can_replay = CanReplay(before.replay, settings);
  const bool replayed = settings != Edit() && before.replay.check().valid &&
                        can_replay && (!before.has_gpu || !followed.empty());
  if (followed.empty() && !replayed) return;
  const bool bound = comparison.predicted_kind == GainKind::kBound;
  if (!bound) comparison.predicted_kind = GainKind::kPredicted;
  // If possible, replaces the sum by one replay of all changes.
  if (!bound && (replayed || followed.size() > 1)) {
    // The settings that were made count, not those that were advised.
    if (settings != Edit() && !before.has_gpu) {
      all.workers = all.threads = -1;
      all.batch = 1;
      all.fused_update = -1;
    }
    if (can_replay) all = Combine(std::move(all), settings);
    if (all != Edit()) comparison.predicted = PredictDifference(before, all);
  }
  LimitToStep(comparison.before.step_ms, comparison.predicted);
}

}  // namespace

Comparison Compare(const Trace& before, const Trace& after) {
  Comparison comparison;
  comparison.before_run = before.run();
  comparison.after_run = after.run();
  const AnalysisContext a(before), b(after);
  const bool slow = SlowStepsRecur(a) || SlowStepsRecur(b);
  comparison.slow_steps_count = slow;
  comparison.before = SpreadOf(a, slow);
  comparison.after = SpreadOf(b, slow);
  EditsById edits;
  const Report first = ReportOf(a, &edits);
  const Report second = ReportOf(b);
  comparison.incomplete = WhatIsIncomplete(first, second);
  comparison.why_not = WhyNoSteps(a, b);
  if (!comparison.why_not.empty()) return comparison;
  const Doubts doubts = DoubtsAbout(a, b);
  const double batch_ratio = BatchRatio(a, b, doubts.model.empty());
  comparison.batch_scale = 1 / batch_ratio;
  comparison.batch_normalised = comparison.batch_scale != 1;
  comparison.measured = Difference(StepsMs(a, slow), StepsMs(b, slow),
                                   comparison.batch_scale, slow);
  comparison.significant =
      comparison.measured.low_ms > 0 || comparison.measured.high_ms < 0;

  // An incomplete recording has no gains, so all findings of the other one
  // would look resolved or new.
  if (comparison.incomplete.empty()) {
    CompareFindings(first, second, comparison);
    // If the models differ, only the measured change is reported: a prediction
    // for another model would be meaningless.
    if (doubts.model.empty()) {
      Predict(a, b, batch_ratio, first, edits, comparison);
    }
  }

  CompareTables(a, b, first, second, comparison);
  comparison.doubt = doubts.model;
  if (!doubts.machine.empty()) {
    comparison.doubt += (comparison.doubt.empty() ? "" : "; ") + doubts.machine;
  }
  // Not if advice was followed, because that may replace most ops.
  if (comparison.doubt.empty() && comparison.shared_ops_frac >= 0 &&
      comparison.shared_ops_frac < kSameProgramFrac &&
      comparison.changed_settings.empty() &&
      comparison.predicted_kind != GainKind::kPredicted) {
    comparison.doubt = "ops found in both traces take only " +
                       Percent(comparison.shared_ops_frac) +
                       " of the op time in one of them";
  }
  return comparison;
}

}  // namespace stepscope
