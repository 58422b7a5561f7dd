#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysed_traces.h"
#include "analyze_output.h"
#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "gate.h"
#include "output.h"
#include "run_list.h"

namespace stepscope {
namespace {

// In the order of ReportFormat, because the index of the choice is cast to it.
constexpr std::string_view kFormats[] = {"text", "json", "markdown", "html"};
constexpr Option kOptions[] = {
    {.name = "--format",
     .value = "FORMAT",
     .help = "format of the report (default: text). json is one object, or a "
             "list of objects for traces that do not belong to one job; html "
             "is the page of stepscope report",
     .choices = kFormats},
    {.name = "--output",
     .short_name = "-o",
     .value = "FILE",
     .help = "write the report to FILE"},
    {.name = "--verbose",
     .short_name = "-v",
     .help = "include notes, skipped rules and every example"},
    {.name = "--rank", .value = "N", .help = "report on rank N alone"},
    kRunOption,
    kCycleOption,
    kCoresOption,
    kThreadsOption,
    {.name = "--fail-on",
     .value = "SEVERITY",
     .help = "exit with status 4 if a finding with a predicted gain is that "
             "severe or more, even at the low end of its likely range",
     .choices = kSeverityChoices}};

std::vector<Term> Paths() {
  return {{"a trace file",
           "of torch.profiler or of stepscope (.json, .json.gz, .json.zst), or "
           "an XSpace (.xplane.pb)"},
          {"-", "a trace on standard input"},
          {"a log directory", "its newest run, last cycle, all ranks"},
          {"a folder", "with one trace per rank"},
          {"a folder of runs", "lists them; analyze one of them"}};
}

// For a folder of runs, which cannot be analysed as a whole: prints the runs in
// it.
void NameRuns(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const auto runs = ListRuns(path);
    if (!runs.ok() || runs->empty()) continue;
    PrintError(path + " holds these runs; analyze one of them");
    const int columns = TerminalColumns(STDERR_FILENO);
    std::fputs(FitLines(ToText(*runs, path), columns).c_str(), stderr);
  }
}

// Returns exit status 0 if at least one trace could be analysed, so that one
// damaged rank does not prevent the report of the others.
int Run(Selection selection, AnalysisOutput output, const std::string& file,
        std::optional<FindingSeverity> fail_on) {
  const bool on_terminal =
      output.format == ReportFormat::kText && WidthFor(file, 0) > 0;
  selection.names_damage = !on_terminal || selection.paths.size() > 1;
  const OnError print = [](const std::string& error) { PrintError(error); };
  // Lanes and tables are collected only for a page, because they cost time and
  // memory that the other formats do not need.
  DrawnRank drawn;
  const bool page = output.format == ReportFormat::kHtml;
  AnalysedTraces traces = AnalyseAll(selection, print, page ? &drawn : nullptr);
  output.page = std::move(drawn.details);
  if (traces.read.empty()) {
    NameRuns(selection.paths);
    return 1;
  }
  if (selection.rank >= 0 && !ChooseRank(selection.rank, traces, print))
    return 1;
  output.to_stdout = file.empty();
  absl::StatusOr<std::string> text = AnalysisText(traces, output);
  if (!text.ok()) {
    PrintError(text.status());
    return 1;
  }
  // Only text is fitted to the terminal. A line break would damage JSON, and
  // viewers wrap Markdown and HTML themselves.
  if (output.format == ReportFormat::kText)
    *text = FitLines(*text, WidthFor(file, 0));
  const int status = WriteResult(*text, file);
  // If the report could not be written, that error comes before the gate:
  // status 4 would send people to a finding that they cannot read.
  if (status != 0 || !fail_on) return status;
  const GateVerdict verdict = JudgeReports(ReportsOf(traces.read), *fail_on);
  if (!verdict.why.empty()) PrintError(verdict.why);
  return verdict.status;
}

int RunAnalyze(const CommandWords& given) {
  const auto format = ChoiceOf(given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  const auto selection = SelectionOf(given);
  if (!selection.ok()) return UsageError(selection.status());
  const auto fail_on = FailOnOf(given);
  if (!fail_on.ok()) return UsageError(fail_on.status());
  if (given.arguments.empty()) {
    return UsageError(
        "analyze needs a trace file or a folder: stepscope analyze PATH...");
  }
  return Run(*selection,
             {.format = static_cast<ReportFormat>(*format),
              .verbose = given.has("--verbose")},
             given.value("--output"), *fail_on);
}

}  // namespace

const Command kAnalyzeCommand = {
    .name = "analyze",
    .arguments = "PATH...",
    .summary = "report what to fix first, with the predicted gain",
    .description =
        "Reports where the time of a training step goes and which changes "
        "would save the most. The traces of all ranks of a job become one "
        "report, which also says which ranks wait for which. Colours are used "
        "on a terminal unless NO_COLOR is set.",
    .terms_title = "PATH is one of:",
    .terms = Paths,
    .options = kOptions,
    .exit_status =
        "0 at least one trace was analysed, 1 none could be read, the report "
        "could not be written or --fail-on found no steps, 2 wrong usage, 4 "
        "--fail-on found such a finding.",
    .run = RunAnalyze};

}  // namespace stepscope
