#include "what_if/prediction.h"

#include <absl/status/status.h>
#include <stepscope/analysis.h>
#include <stepscope/printable.h>
#include <stepscope/rules.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "command_words.h"
#include "context/contention.h"
#include "what_if/settings.h"
#include "words/labels.h"

namespace stepscope {
namespace {

std::string StepMs(double value) {
  char text[64];
  // Three digits below 10 ms. From 9.995 on, two decimals would print 10.00.
  std::snprintf(text, sizeof(text), "%.*f", value < 9.995 ? 2 : 1, value);
  return text;
}

std::string Joined(const Change& change) {
  std::string text;
  for (const std::string& id : change.findings)
    text += (text.empty() ? "" : ", ") + id;
  for (const Setting& setting : change.settings)
    text += (text.empty() ? "" : ", ") + ToText(setting);
  return text;
}

Change WithWorkers(Change change, int64_t count) {
  for (Setting& setting : change.settings) {
    if (setting.key == "workers") setting.value = count;
  }
  return change;
}

// Computes Prediction::enough_workers by bisection, which works because up to
// that number each additional worker makes the step shorter.
int64_t EnoughWorkers(const WhatIf& what_if, const Prediction& prediction) {
  const std::vector<Setting>& settings = prediction.change.settings;
  const auto workers = std::ranges::find(settings, "workers", &Setting::key);
  if (workers == settings.end()) return 0;
  const int64_t* asked = std::get_if<int64_t>(&workers->value);
  const double baseline = prediction.baseline_ms;
  // Compared as printed: fewer workers are enough if the printed step is the
  // same.
  const std::string step = StepMs(baseline - prediction.gain.expected_ms);
  if (asked == nullptr || prediction.gain.expected_ms <= 0 ||
      step == StepMs(baseline)) {
    return 0;
  }
  int64_t too_few = 0;
  int64_t enough = *asked;
  while (too_few + 1 < enough) {
    const int64_t count = std::midpoint(too_few, enough);
    const std::optional<Gain> gain =
        what_if.Predict(WithWorkers(prediction.change, count));
    const bool same = gain && StepMs(baseline - gain->expected_ms) == step;
    (same ? enough : too_few) = count;
  }
  return enough < *asked ? enough : 0;
}

std::string EnoughText(int64_t workers) {
  if (workers == 0) return "";
  return workers == 1 ? "; one worker is enough"
                      : "; " + std::to_string(workers) + " workers are enough";
}

std::string ContendedText(double ms) {
  if (ms <= 0) return "";
  return "doubtful: the recorded step waits " + StepMs(ms) +
         " ms for a free core, and the prediction keeps this wait; record "
         "while nothing else runs\n";
}

// Returns which part of `change` cannot be predicted, and why. Each part is
// tried alone, because WhatIf::Predict() says only that it cannot predict.
std::string WhyNot(const WhatIf& what_if, const Change& change) {
  if (!what_if.why_not().empty()) return what_if.why_not();
  for (const std::string& id : change.findings) {
    if (!what_if.Predict({.findings = {id}}))
      return "the report of this trace has no finding " + id +
             " with a predicted gain";
  }
  for (const Setting& setting : change.settings) {
    if (what_if.Predict({.settings = {setting}})) continue;
    return "the replay cannot model " + ToText(setting) +
           " for this trace: the recorded steps contain nothing that it would "
           "change, or the setting is not modelled for this kind of run";
  }
  return "the replay cannot model these changes together";
}

std::string JsonNumber(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.6f", value);
  return text;
}

std::string JsonMs(const Prediction& prediction, double gain_ms) {
  return prediction.why_not.empty()
             ? JsonNumber(prediction.baseline_ms - gain_ms)
             : "null";
}

// Reads the IDs of "--finding a,b". Errors: InvalidArgument (no rule has the
// ID).
absl::StatusOr<std::vector<std::string>> ReadFindings(std::string_view list) {
  const std::vector<RuleText> rules = RuleTexts();
  std::vector<std::string_view> known;
  known.reserve(rules.size());
  for (const RuleText& rule : rules) known.push_back(rule.id);
  std::vector<std::string> ids;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    const std::string id(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    if (std::ranges::find(known, id) == known.end()) {
      const std::string_view nearest = Nearest(id, known);
      return absl::InvalidArgumentError(
          "no rule has the ID '" + id + "'; " +
          (nearest.empty() ? "stepscope rules lists the IDs"
                           : "did you mean '" + std::string(nearest) + "'?"));
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

absl::StatusOr<Change> ReadChange(std::string_view findings,
                                  std::span<const std::string> settings) {
  Change change;
  auto ids = ReadFindings(findings);
  if (!ids.ok()) return ids.status();
  change.findings = *std::move(ids);
  for (const std::string& word : settings) {
    auto setting = ParseSetting(word);
    if (!setting.ok()) return setting.status();
    change.settings.push_back(*std::move(setting));
  }
  return change;
}

Prediction Predict(const Trace& trace, const Change& change) {
  Prediction prediction;
  prediction.change = change;
  const Report report = Analyze(trace);
  const StepStats& steps = report.steps;
  // The step that the report's gains refer to, so that both commands show the
  // same number.
  prediction.baseline_ms = GainStepMs(steps);
  const auto contended = report.time_split_ms.find("contended");
  if (contended != report.time_split_ms.end() &&
      contended->second >= kLargeDelayFrac * steps.mean_ms) {
    prediction.contended_ms = contended->second;
  }
  const WhatIf what_if(trace);
  if (const std::optional<Gain> gain = what_if.Predict(change)) {
    prediction.gain = *gain;
    prediction.enough_workers = EnoughWorkers(what_if, prediction);
  } else {
    prediction.why_not = WhyNot(what_if, change);
  }
  return prediction;
}

std::string ToText(const Prediction& prediction) {
  if (!prediction.why_not.empty())
    return "no prediction: " + Printable(prediction.why_not) + "\n";
  const double before = prediction.baseline_ms;
  const double after = before - prediction.gain.expected_ms;
  const std::string what = Printable(Joined(prediction.change));
  // No gain and no range: the run already has these settings.
  if (prediction.gain.expected_ms == 0 && prediction.gain.high_ms == 0)
    return what + ": no change from " + StepMs(before) + " ms per step\n";
  return what + ": " + StepMs(before) + " to " + StepMs(after) +
         " ms per step, " + StepMs(before / after) +
         (prediction.gain.pairs > 0 ? "x (likely " : "x (roughly ") +
         StepMs(before - prediction.gain.high_ms) + " to " +
         StepMs(before - prediction.gain.low_ms) + " ms)" +
         EnoughText(prediction.enough_workers) + "\n" +
         ContendedText(prediction.contended_ms);
}

std::string ToJson(const Prediction& prediction) {
  std::string findings;
  for (const std::string& id : prediction.change.findings)
    findings += (findings.empty() ? "" : ", ") + JsonQuoted(id);
  std::string settings;
  for (const Setting& setting : prediction.change.settings) {
    settings += (settings.empty() ? "" : ", ") + JsonQuoted(setting.key) +
                ": " + JsonValue(setting);
  }
  // The shortest step belongs to the highest gain.
  const Gain& gain = prediction.gain;
  return "{\n  \"version\": 2,\n  \"findings\": [" + findings +
         "],\n  \"settings\": {" + settings +
         "},\n  \"baseline_ms\": " + JsonNumber(prediction.baseline_ms) +
         ",\n  \"predicted_ms\": " + JsonMs(prediction, gain.expected_ms) +
         ",\n  \"low_ms\": " + JsonMs(prediction, gain.high_ms) +
         ",\n  \"high_ms\": " + JsonMs(prediction, gain.low_ms) +
         ",\n  \"contended_ms\": " + JsonNumber(prediction.contended_ms) +
         ",\n  \"why_not\": " + JsonQuoted(prediction.why_not) + "\n}\n";
}

}  // namespace stepscope
