#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "one_trace.h"
#include "output.h"
#include "what_if/prediction.h"
#include "what_if/settings.h"

namespace stepscope {
namespace {

constexpr std::string_view kFormats[] = {"text", "json"};
constexpr Option kOptions[] = {
    {.name = "--finding",
     .value = "ID[,ID...]",
     .help = "follow the advice of these findings of the report too"},
    {.name = "--format",
     .value = "FORMAT",
     .help = "output format (default: text)",
     .choices = kFormats},
    {.name = "--output",
     .short_name = "-o",
     .value = "FILE",
     .help = "write to FILE"}};

// True for words like "workers=2", unless a file has that name.
bool IsSetting(const std::string& word) {
  std::error_code error;
  // A "=" behind a slash belongs to a path, such as runs/lr=0.1/trace.json.
  // Without a "=", find() returns npos, and the comparison is false.
  return word.find('=') < word.find('/') &&
         !std::filesystem::exists(word, error);
}

int RunWhatIf(const CommandWords& given) {
  const auto format = ChoiceOf(given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  // Without this check, a forgotten trace would be reported as a file
  // "workers=2" that cannot be read.
  if (!given.arguments.empty() && IsSetting(given.arguments[0])) {
    return UsageError(
        "the trace comes before the settings, so '" + given.arguments[0] +
        "' cannot be first: stepscope what-if TRACE KEY=VALUE...");
  }
  // Read the settings before the trace, so that a misspelled key is reported
  // before a large trace is read.
  const auto change =
      ReadChange(given.value("--finding"),
                 std::span(given.arguments)
                     .subspan(std::min<size_t>(1, given.arguments.size())));
  if (!change.ok()) return UsageError(change.status());
  if (given.arguments.empty() ||
      (change->settings.empty() && change->findings.empty())) {
    return UsageError(
        "what-if needs a trace and at least one change: stepscope what-if "
        "TRACE KEY=VALUE..., with these keys: " +
        SettingKeys());
  }
  const absl::StatusOr<Trace> trace = ReadOneTrace(given.arguments[0]);
  if (!trace.ok()) {
    PrintError(trace.status());
    return 1;
  }
  for (const Loss& loss : trace->losses()) {
    if (loss.severity == Severity::kError)
      PrintError(given.arguments[0] + ": " + loss.detail);
  }
  const Prediction prediction = Predict(*trace, *change);
  const std::string output = given.value("--output");
  const int status = WriteResult(
      *format == 1 ? ToJson(prediction)
                   : FitLines(ToText(prediction), WidthFor(output, 0)),
      output);
  // The output already contains the reason. The status tells a script that the
  // output has no number.
  return prediction.why_not.empty() ? status : 1;
}

}  // namespace

const Command kWhatIfCommand = {
    .name = "what-if",
    .arguments = "TRACE KEY=VALUE...",
    .summary = "predict the step time under other settings",
    .description =
        "Predicts the step time of the program in TRACE with other settings, "
        "by replaying the recorded steps. The range is where 90 % of outcomes "
        "are expected. TRACE is a trace file, a folder or log directory with "
        "one trace, or - for standard input. Several changes are predicted "
        "together.\n"
        "In JSON, predicted_ms, low_ms and high_ms are the step after the "
        "change, in milliseconds, and null where why_not says why nothing can "
        "be predicted. A step with another batch size is scaled to the "
        "recorded number of samples.",
    .terms_title = "Settings:",
    .terms = SettingTerms,
    .options = kOptions,
    .exit_status =
        "0 predicted, 1 TRACE could not be read or nothing could be predicted, "
        "2 wrong usage.",
    .completes = Arguments::kTraceThenSettings,
    .run = RunWhatIf};

}  // namespace stepscope
