#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "one_trace.h"
#include "output.h"
#include "prediction.h"
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
  const auto change =
      ReadChange(given->value("--finding"),
                 std::span(given->arguments)
                     .subspan(std::min<size_t>(1, given->arguments.size())));
  if (!change.ok()) return UsageError(change.status());
  if (given->arguments.empty() ||
      (change->settings.empty() && change->findings.empty())) {
    return UsageError(
        "what-if needs a trace and at least one change: stepscope what-if "
        "TRACE KEY=VALUE..., with these keys: " +
        SettingKeys());
  }
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
      WriteResult(*format == 1 ? ToJson(prediction) : ToText(prediction),
                  given->value("--output"));
  return prediction.why_not.empty() ? status : 1;
}

}  // namespace stepscope
