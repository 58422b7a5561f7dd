#include <absl/status/status.h>
#include <stepscope/compare.h>
#include <stepscope/page.h>

#include <string>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "gate.h"
#include "one_trace.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr int kDefaultWidth = 110;  // if nothing limits the width
constexpr std::string_view kFormats[] = {"text", "json", "markdown", "html"};
constexpr Option kOptions[] = {
    {.name = "--format",
     .value = "FORMAT",
     .help = "output format (default: text)",
     .choices = kFormats},
    {.name = "--output",
     .short_name = "-o",
     .value = "FILE",
     .help = "write to FILE"},
    {.name = "--rank",
     .value = "N",
     .help = "rank to compare (default: the first found)"},
    {.name = "--fail-over",
     .value = "N%",
     .help = "exit with status 4 if AFTER is slower by more than N % of the "
             "step of BEFORE; the whole 95 % interval must lie beyond it"},
    {.name = "--min-ms",
     .value = "N",
     .help = "the same in milliseconds. With both options, both limits must "
             "be exceeded"}};

// `format` is an index of kFormats.
std::string Text(const Comparison& comparison, size_t format, int width) {
  if (format == 1) return ToJson(comparison);
  if (format == 3) return ToHtml(comparison);
  return format == 2 ? ToMarkdown(comparison) : ToText(comparison, width);
}

int RunCompare(const CommandWords& given) {
  if (given.arguments.size() != 2) {
    return UsageError(
        "compare needs two traces: stepscope compare BEFORE AFTER");
  }
  const auto format = ChoiceOf(given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  const auto rank = NumberOf(given, "--rank", -1);
  if (!rank.ok()) return UsageError(rank.status());
  // Empty without --fail-over and --min-ms; then there is no verdict.
  const auto limits = SlowerLimitsOf(given);
  if (!limits.ok()) return UsageError(limits.status());
  const absl::StatusOr<Trace> before = ReadRank(given.arguments[0], *rank);
  const absl::StatusOr<Trace> after = ReadRank(given.arguments[1], *rank);
  // Report both errors, not only the first.
  for (const auto* trace : {&before, &after}) {
    if (!trace->ok()) PrintError(trace->status());
  }
  if (!before.ok() || !after.ok()) return 1;
  const Comparison comparison = Compare(*before, *after);
  const std::string output = given.value("--output");
  const int status = WriteResult(
      Text(comparison, *format, WidthFor(output, kDefaultWidth)), output);
  // Without limits, status 1 tells a script that the text contains a reason
  // instead of figures. With limits, the verdict tells the same.
  if (status != 0 || !*limits) return comparison.why_not.empty() ? status : 1;
  const GateVerdict verdict = JudgeComparison(comparison, **limits);
  if (!verdict.why.empty()) PrintError(verdict.why);
  return verdict.status;
}

}  // namespace

const Command kCompareCommand = {
    .name = "compare",
    .arguments = "BEFORE AFTER",
    .summary = "compare two traces: predicted and measured gain",
    .description =
        "Compares two traces of one program, recorded before and after a "
        "change: the step time and its spread, the gain predicted for the "
        "advice that was followed and the gain measured, and what changed by "
        "cause, by operator and by kernel. BEFORE and AFTER are trace files, "
        "folders or log directories.",
    .options = kOptions,
    .exit_status =
        "0 compared, 1 a trace could not be read or has no steps, or too few "
        "for --fail-over, 2 wrong usage, 4 slower than allowed.",
    .run = RunCompare};

}  // namespace stepscope
