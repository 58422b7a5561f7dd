#include <stepscope/compare.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <unordered_map>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "engine/edit_settings.h"
#include "engine/report_of.h"
#include "engine/sizing.h"
#include "evidence/optimizer_work.h"
#include "ops/intervals.h"
#include "ops/op_arguments.h"
#include "words/labels.h"

namespace stepscope {
namespace {

constexpr int kResamples = 2000;
constexpr double kWorthNaming = 0.005;  // of the longer step
constexpr size_t kMostRows = 200;

std::vector<double> SteadyMs(const AnalysisContext& m) {
  std::vector<double> ms;
  for (size_t i : m.steps.steady) {
    ms.push_back(m.steps.windows[i].tiled.length() * 1e-6);
  }
  return ms;
}

StepSpread SpreadOf(const AnalysisContext& m) {
  const std::vector<double> ms = SteadyMs(m);
  StepSpread spread;
  spread.steps = static_cast<int64_t>(ms.size());
  if (ms.empty()) return spread;
  spread.mean_ms = m.stats.mean_ms;
  spread.median_ms = Median(ms);
  spread.min_ms = std::ranges::min(ms);
  spread.max_ms = std::ranges::max(ms);
  spread.batch_size = BatchSize(m.trace);
  return spread;
}

// The difference of the medians, and the middle 95 % of what it is when the
// steps of both sides are drawn again. The seed is fixed: one answer a pair.
Gain Difference(const std::vector<double>& before, std::vector<double> after,
                double scale) {
  for (double& ms : after) ms *= scale;
  std::mt19937 random(1);
  const auto redraw = [&](const std::vector<double>& from) {
    std::uniform_int_distribution<size_t> any(0, from.size() - 1);
    std::vector<double> drawn;
    for (size_t i = 0; i < from.size(); ++i) drawn.push_back(from[any(random)]);
    return Median(std::move(drawn));
  };
  std::vector<double> differences;
  for (int i = 0; i < kResamples; ++i) {
    const double one = redraw(before);
    differences.push_back(one - redraw(after));
  }
  std::ranges::sort(differences);
  Gain gain;
  gain.expected_ms = Median(before) - Median(after);
  gain.low_ms = differences[kResamples / 40];
  gain.high_ms = differences[kResamples - 1 - kResamples / 40];
  return gain;
}

// Kernel, copy and memset time of the steady steps, by name.
void AddKernels(const AnalysisContext& m, bool is_after,
                std::map<std::string, Changed>& rows) {
  if (m.steps.steady.empty()) return;
  const double share = 1.0 / m.steps.steady.size();
  std::vector<Span> spans;
  for (size_t i : m.steps.steady) spans.push_back(m.steps.windows[i].tiled);
  spans = Merge(std::move(spans));
  const auto add = [&](const DeviceWork& work, std::string_view name) {
    if (LengthIn(spans, {work.begin_ns, work.begin_ns + 1}) == 0) return;
    Changed& row = rows[std::string(name)];
    row.name = name;
    (is_after ? row.after_ms : row.before_ms) +=
        share * (work.end_ns - work.begin_ns) * 1e-6;
    (is_after ? row.after_calls : row.before_calls) += share;
  };
  for (const Kernel& kernel : m.trace.kernels()) {
    add(kernel, m.trace.name(kernel.name));
  }
  for (const Copy& copy : m.trace.copies()) {
    const std::string_view name = m.trace.name(copy.name);
    add(copy, name.empty() ? "copy" : name);
  }
  for (const Memset& memset : m.trace.memsets()) add(memset, "memset");
}

void AddOps(const AnalysisContext& m, bool is_after,
            std::map<std::string, Changed>& rows) {
  for (const TopOp& op : OpsByOwnTime(m)) {
    Changed& row = rows[op.name];
    row.name = op.name;
    (is_after ? row.after_ms : row.before_ms) = op.self_ms_per_step;
    (is_after ? row.after_calls : row.before_calls) = op.calls_per_step;
  }
}

double SharedOps(const std::map<std::string, Changed>& ops) {
  Changed shared, all;
  for (const auto& [name, op] : ops) {
    all.before_ms += op.before_ms;
    all.after_ms += op.after_ms;
    if (op.before_calls <= 0 || op.after_calls <= 0) continue;
    shared.before_ms += op.before_ms;
    shared.after_ms += op.after_ms;
  }
  if (all.before_ms <= 0 || all.after_ms <= 0) return -1;
  return std::min(shared.before_ms / all.before_ms,
                  shared.after_ms / all.after_ms);
}

std::vector<Changed> Largest(const std::map<std::string, Changed>& rows,
                             double least_ms) {
  std::vector<Changed> order;
  for (const auto& [name, row] : rows) {
    if (std::abs(row.after_ms - row.before_ms) >= least_ms) {
      order.push_back(row);
    }
  }
  std::ranges::stable_sort(order, {}, [](const Changed& row) {
    return -std::abs(row.after_ms - row.before_ms);
  });
  if (order.size() > kMostRows) order.resize(kMostRows);
  return order;
}

bool Promises(const Finding& finding) {
  return !IsNote(finding) && finding.gain_kind != GainKind::kNone &&
         finding.gain.expected_ms > 0;
}

const Finding* Promise(const Report& report, const std::string& id) {
  for (const Finding& finding : report.findings) {
    if (finding.id == id && Promises(finding)) return &finding;
  }
  return nullptr;
}

// What the second run has set. With a GPU: how many workers; the rest is told
// by findings.
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
  if (const int64_t batch = BatchSize(after.trace); batch > 0) {
    set("batch_size", batch);
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

// The settings in which it differs from the first, as one edit.
Edit SettingsThatDiffer(const AnalysisContext& before,
                        const AnalysisContext& after) {
  Edit all;
  for (const Setting& setting : SettingsIn(after)) {
    const std::optional<Edit> edit = EditOf(before, setting);
    if (edit) all = Combine(all, *edit);
  }
  return all;
}

// A finding may fall silent because something else was changed: no setting that
// it asked for is another one now.
bool FellSilent(const Edit& advised, const Edit& settings) {
  const bool asks[] = {advised.workers >= 0, advised.threads > 0,
                       advised.batch != 1, advised.fused_update >= 0};
  const bool set[] = {settings.workers >= 0, settings.threads > 0,
                      settings.batch != 1, settings.fused_update >= 0};
  bool any_asked = false;
  for (size_t i = 0; i < std::size(asks); ++i) {
    if (asks[i] && set[i]) return false;
    any_asked |= asks[i];
  }
  return any_asked;
}

// What was promised for all changes made, replayed together where replay
// speaks; of several bounds, the sum is a bound.
void Predict(const AnalysisContext& before, const AnalysisContext& after,
             const Report& report, const EditsById& edits,
             Comparison& comparison) {
  const Edit settings = SettingsThatDiffer(before, after);
  if (!before.has_gpu) {
    std::erase_if(comparison.made, [&](const std::string& id) {
      const auto known = edits.find(id);
      return known != edits.end() && !known->second.empty() &&
             FellSilent(known->second.front(), settings);
    });
  }
  bool bound = false;
  Edit all;
  for (const std::string& id : comparison.made) {
    const Finding& finding = *Promise(report, id);
    bound |= finding.gain_kind == GainKind::kBound;
    comparison.predicted.expected_ms += finding.gain.expected_ms;
    comparison.predicted.low_ms += finding.gain.low_ms;
    comparison.predicted.high_ms += finding.gain.high_ms;
    const auto known = edits.find(id);
    if (known != edits.end() && !known->second.empty()) {
      all = Combine(all, known->second.front());
    }
  }
  comparison.changed = ChangesInWords(settings, 1);
  const bool replayed = settings != Edit() && before.replay.check().valid &&
                        (!before.has_gpu || !comparison.made.empty());
  if (comparison.made.empty() && !replayed) return;
  comparison.predicted_kind = bound ? GainKind::kBound : GainKind::kPredicted;
  if (!bound && (replayed || comparison.made.size() > 1)) {
    // What was set counts, not what was advised.
    if (settings != Edit() && !before.has_gpu) {
      all.workers = all.threads = -1;
      all.batch = 1;
      all.fused_update = -1;
    }
    all = Combine(all, settings);
    if (all != Edit()) comparison.predicted = PredictDifference(before, all);
  }
}

}  // namespace

Comparison Compare(const Trace& before, const Trace& after) {
  Comparison comparison;
  comparison.before_run = before.run();
  comparison.after_run = after.run();
  const AnalysisContext a(before), b(after);
  comparison.before = SpreadOf(a);
  comparison.after = SpreadOf(b);
  if (a.steps.empty() || b.steps.empty()) {
    comparison.why_not =
        std::string(a.steps.empty() ? "the first" : "the second") +
        " trace has no steps";
    return comparison;
  }
  double scale = 1;
  if (comparison.before.batch_size > 0 && comparison.after.batch_size > 0 &&
      comparison.before.batch_size != comparison.after.batch_size) {
    comparison.per_sample = true;
    scale = static_cast<double>(comparison.before.batch_size) /
            static_cast<double>(comparison.after.batch_size);
  }
  comparison.measured = Difference(SteadyMs(a), SteadyMs(b), scale);
  comparison.certain =
      comparison.measured.low_ms > 0 || comparison.measured.high_ms < 0;

  EditsById edits;
  const Report first = ReportOf(a, &edits);
  const Report second = ReportOf(b);
  for (const Finding& finding : first.findings) {
    if (!Promises(finding)) continue;
    // A pattern that is still there but matters less was not changed.
    const bool there =
        std::ranges::count(second.findings, finding.id, &Finding::id) > 0;
    if (!there) {
      comparison.made.push_back(finding.id);
    } else if (Promise(second, finding.id) != nullptr) {
      comparison.remaining.push_back(finding.id);
    }
  }
  for (const Finding& finding : second.findings) {
    if (Promises(finding) && Promise(first, finding.id) == nullptr) {
      comparison.appeared.push_back(finding.id);
    }
  }
  Predict(a, b, first, edits, comparison);

  const double least_ms = kWorthNaming * std::max(comparison.before.mean_ms,
                                                  comparison.after.mean_ms);
  std::map<std::string, Changed> causes, ops, kernels;
  for (const auto& [key, ms] : first.time_split_ms) {
    causes[key].name = key;
    causes[key].before_ms = ms;
  }
  for (const auto& [key, ms] : second.time_split_ms) {
    causes[key].name = key;
    causes[key].after_ms = ms;
  }
  AddOps(a, false, ops);
  AddOps(b, true, ops);
  AddKernels(a, false, kernels);
  AddKernels(b, true, kernels);
  comparison.shared_ops = SharedOps(ops);
  comparison.causes = Largest(causes, 0);
  comparison.ops = Largest(ops, least_ms);
  comparison.kernels = Largest(kernels, least_ms);
  return comparison;
}

}  // namespace stepscope
