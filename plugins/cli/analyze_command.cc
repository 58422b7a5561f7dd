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

namespace stepscope {
namespace {

constexpr OptionName kOptions[] = {{"--format"},
                                   {"--output", true, "-o"},
                                   {"--verbose", false, "-v"},
                                   {"--rank"},
                                   {"--run"},
                                   {"--cycle"},
                                   {"--cores"},
                                   {"--threads"},
                                   {"--fail-on"}};
constexpr std::string_view kFormats[] = {"text", "json", "markdown", "html"};

constexpr const char* kUsage =
    R"(Usage: stepscope analyze [options] PATH...

Reports where the time of a training step goes and which changes would save the
most. The traces of all ranks of a job become one report, which also says which
ranks wait for which. PATH is one of:
  a trace file of torch.profiler or of stepscope (.json, .json.gz, .json.zst)
  an XSpace (.xplane.pb)
  a log directory of stepscope: its newest run, last cycle, all ranks
  a folder with one trace per rank

Options:
  --format text|json|markdown|html
                               format of the report (default: text). json is one
                               object, or a list of objects for traces that do
                               not belong to one job; html is the page of
                               stepscope report
  --output FILE, -o FILE       write the report to FILE
  --verbose, -v                include notes, skipped rules and every example
  --rank N                     report on rank N alone
  --run RUN                    run of the log directory (default: the newest)
  --cycle N                    recorded cycle (default: the last)
  --cores N, --threads N       usable cores, and threads of an op on the CPU, for
                               traces that do not say (those of torch.profiler)
  --fail-on SEVERITY           exit with status 4 if a finding with a predicted
                               gain is low, medium, high or critical, or above,
                               even at the low end of its likely range
  --help, -h                   print this text

Colours are used on a terminal unless NO_COLOR is set.
Exit status: 0 at least one trace was analysed, 1 none could be read, the report
could not be written or --fail-on found no steps, 2 wrong usage, 4 --fail-on
found such a finding.
)";

// Exit status 0 if at least one trace could be analysed: one damaged rank must
// not cost the report of the others.
int Run(const Selection& selection, AnalysisOutput output,
        const std::string& file, std::optional<FindingSeverity> fail_on) {
  const OnError print = [](const std::string& error) { PrintError(error); };
  DrawnRank drawn;
  const bool page = output.format == ReportFormat::kHtml;
  std::vector<AnalysedTrace> results =
      AnalyseAll(selection, print, page ? &drawn : nullptr);
  output.page = std::move(drawn.details);
  if (results.empty()) return 1;
  if (selection.rank >= 0 && !ChooseRank(selection.rank, results, print))
    return 1;
  output.to_stdout = file.empty();
  const absl::StatusOr<std::string> text = AnalysisText(results, output);
  if (!text.ok()) {
    PrintError(text.status());
    return 1;
  }
  const int status = WriteResult(*text, file);
  if (status != 0 || !fail_on) return status;
  const GateVerdict verdict = JudgeReports(ReportsOf(results), *fail_on);
  if (!verdict.why.empty()) PrintError(verdict.why);
  return verdict.status;
}

}  // namespace

int AnalyzeCommand(Words words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const auto format = ChoiceOf(*given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  const auto cycle = NumberOf(*given, "--cycle", -1);
  if (!cycle.ok()) return UsageError(cycle.status());
  const auto rank = NumberOf(*given, "--rank", -1);
  if (!rank.ok()) return UsageError(rank.status());
  const auto cores = NumberOf(*given, "--cores", -1);
  if (!cores.ok()) return UsageError(cores.status());
  const auto threads = NumberOf(*given, "--threads", -1);
  if (!threads.ok()) return UsageError(threads.status());
  const auto fail_on = FailOnOf(*given);
  if (!fail_on.ok()) return UsageError(fail_on.status());
  if (given->arguments.empty()) {
    return UsageError(
        "analyze needs a trace file or a folder: stepscope analyze PATH...");
  }
  return Run({.paths = given->arguments,
              .run = given->value("--run"),
              .cycle = *cycle,
              .rank = *rank,
              .machine = {.cores = *cores, .threads = *threads}},
             {.format = static_cast<ReportFormat>(*format),
              .verbose = given->has("--verbose")},
             given->value("--output"), *fail_on);
}

}  // namespace stepscope
