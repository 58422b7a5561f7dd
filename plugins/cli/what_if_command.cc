#include <absl/status/status.h>
#include <stepscope/analysis.h>
#include <stepscope/rules.h>
#include <stepscope/what_if.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "one_trace.h"
#include "output.h"
#include "settings.h"

namespace stepscope {
namespace {

constexpr OptionName kOptions[] = {
    {"--finding"}, {"--format"}, {"--output", true, "-o"}};
constexpr std::string_view kFormats[] = {"text", "json"};

constexpr const char* kUsage =
    R"(Usage: stepscope what-if [options] TRACE KEY=VALUE...

Predicts the step time of the program in TRACE with other settings, by replaying
the recorded steps. The range is where 90 % of outcomes are expected. TRACE is a
trace file, or a folder or log directory with one trace. Several changes are
predicted together.

Settings:
)";
constexpr const char* kOptionsUsage =
    R"(
Options:
  --finding ID[,ID...]    follow the advice of these findings of the report too
  --format text|json      output format (default: text)
  --output FILE, -o FILE  write to FILE
  --help, -h              print this text

In JSON, predicted_ms, low_ms and high_ms are the step after the change, in
milliseconds, and null where why_not says why nothing can be predicted. A step
with another batch size is scaled to the recorded number of samples.
Exit status: 0 predicted, 1 TRACE could not be read or nothing could be
predicted, 2 wrong usage.
)";

struct Prediction {
  Change change;
  double baseline_ms = 0;  // the mean steady step as recorded; 0: no steps
  Gain gain;
  std::string why_not;  // empty if `gain` is predicted
};

std::string Number(double value) {
  char text[64];
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

// Which part of `change` cannot be predicted, and why.
std::string WhyNot(const WhatIf& what_if, const Change& change) {
  if (!what_if.why_not().empty()) return what_if.why_not();
  for (const std::string& id : change.findings) {
    if (!what_if.Predict({.findings = {id}}))
      return "the report of this trace has no finding " + id +
             " with a predicted gain";
  }
  for (const Setting& setting : change.settings) {
    if (what_if.Predict({.settings = {setting}})) continue;
    return "the replay cannot express " + ToText(setting) +
           " for this trace: the recorded steps lack what it would change, or "
           "the setting is not modelled for this kind of run";
  }
  return "the replay cannot express these changes together";
}

Prediction Predict(const Trace& trace, const Change& change) {
  Prediction prediction;
  prediction.change = change;
  prediction.baseline_ms = Analyze(trace).steps.mean_ms;
  const WhatIf what_if(trace);
  if (const std::optional<Gain> gain = what_if.Predict(change)) {
    prediction.gain = *gain;
  } else {
    prediction.why_not = WhyNot(what_if, change);
  }
  return prediction;
}

std::string Text(const Prediction& prediction) {
  if (!prediction.why_not.empty())
    return "no prediction: " + prediction.why_not + "\n";
  const double before = prediction.baseline_ms;
  const double after = before - prediction.gain.expected_ms;
  const std::string what = Joined(prediction.change);
  if (prediction.gain.expected_ms == 0 && prediction.gain.high_ms == 0)
    return what + ": no change from " + Number(before) + " ms per step\n";
  return what + ": " + Number(before) + " to " + Number(after) +
         " ms per step, " + Number(before / after) + "x (likely " +
         Number(before - prediction.gain.high_ms) + " to " +
         Number(before - prediction.gain.low_ms) + " ms)\n";
}

std::string Milliseconds(const Prediction& prediction, double gain_ms) {
  if (!prediction.why_not.empty()) return "null";
  char text[64];
  std::snprintf(text, sizeof(text), "%.6f", prediction.baseline_ms - gain_ms);
  return text;
}

std::string Json(const Prediction& prediction) {
  std::string findings;
  for (const std::string& id : prediction.change.findings)
    findings += (findings.empty() ? "" : ", ") + JsonQuoted(id);
  std::string settings;
  for (const Setting& setting : prediction.change.settings) {
    settings += (settings.empty() ? "" : ", ") + JsonQuoted(setting.key) +
                ": " + JsonValue(setting);
  }
  char baseline[64];
  std::snprintf(baseline, sizeof(baseline), "%.6f", prediction.baseline_ms);
  const Gain& gain = prediction.gain;
  return "{\n  \"version\": 2,\n  \"findings\": [" + findings +
         "],\n  \"settings\": {" + settings +
         "},\n  \"baseline_ms\": " + baseline + ",\n  \"predicted_ms\": " +
         Milliseconds(prediction, gain.expected_ms) +
         ",\n  \"low_ms\": " + Milliseconds(prediction, gain.high_ms) +
         ",\n  \"high_ms\": " + Milliseconds(prediction, gain.low_ms) +
         ",\n  \"why_not\": " + JsonQuoted(prediction.why_not) + "\n}\n";
}

// The IDs of "--finding a,b". Errors: InvalidArgument (no rule has the ID).
absl::StatusOr<std::vector<std::string>> ReadFindings(std::string_view list) {
  const std::vector<RuleText> rules = RuleTexts();
  std::vector<std::string_view> known;
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

absl::StatusOr<Change> ReadChange(const CommandWords& given) {
  Change change;
  auto findings = ReadFindings(given.value("--finding"));
  if (!findings.ok()) return findings.status();
  change.findings = *std::move(findings);
  for (size_t i = 1; i < given.arguments.size(); ++i) {
    auto setting = ParseSetting(given.arguments[i]);
    if (!setting.ok()) return setting.status();
    change.settings.push_back(*std::move(setting));
  }
  if (given.arguments.empty() ||
      (change.settings.empty() && change.findings.empty())) {
    return absl::InvalidArgumentError(
        "what-if needs a trace and at least one change: stepscope what-if "
        "TRACE KEY=VALUE..., with these keys: " +
        SettingKeys());
  }
  return change;
}

}  // namespace

int WhatIfCommand(Words words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs((kUsage + SettingsUsage() + kOptionsUsage).c_str(), stdout);
    return 0;
  }
  const auto format = ChoiceOf(*given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  const auto change = ReadChange(*given);
  if (!change.ok()) return UsageError(change.status());
  const absl::StatusOr<Trace> trace = ReadOneTrace(given->arguments[0]);
  if (!trace.ok()) {
    PrintError(trace.status());
    return 1;
  }
  for (const Loss& loss : trace->losses()) {
    if (loss.severity == Severity::kError)
      PrintError(given->arguments[0] + ": " + loss.detail);
  }
  const Prediction prediction = Predict(*trace, *change);
  const int status =
      WriteResult(*format == 1 ? Json(prediction) : Text(prediction),
                  given->value("--output"));
  return prediction.why_not.empty() ? status : 1;
}

}  // namespace stepscope
