#include <stepscope/compare.h>
#include <stepscope/page.h>
#include <stepscope/printable.h>
#include <stepscope/trace.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "analysed_traces.h"
#include "analyze_output.h"
#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "one_trace.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr Option kOptions[] = {
    {.name = "--output",
     .short_name = "-o",
     .value = "FILE",
     .help = "write to FILE (default: report.html); \"-\" is standard output"},
    {.name = "--rank",
     .value = "N",
     .help = "rank to report on, or to compare"},
    kRunOption,
    kCycleOption,
    kCoresOption,
    kThreadsOption};
constexpr const char* kDefaultFile = "report.html";

// The page of a report, or of a comparison.
absl::StatusOr<std::string> ReportPage(const Selection& selection) {
  const OnError print = [](const std::string& error) { PrintError(error); };
  DrawnRank drawn;
  AnalysedTraces traces = AnalyseAll(selection, print, &drawn);
  if (traces.read.empty()) return absl::NotFoundError("no trace could be read");
  if (selection.rank >= 0 && !ChooseRank(selection.rank, traces, print)) {
    return absl::NotFoundError("no page was made");
  }
  return AnalysisText(traces, {.format = ReportFormat::kHtml,
                               .page = std::move(drawn.details)});
}

// Errors: FailedPrecondition where nothing can be compared. `stepscope compare`
// prints that reason as its result, but a page without figures helps nobody.
absl::StatusOr<std::string> ComparisonPage(const Trace& before,
                                           const Trace& after) {
  const Comparison comparison = Compare(before, after);
  if (!comparison.why_not.empty()) {
    return absl::FailedPreconditionError("the traces cannot be compared: " +
                                         comparison.why_not);
  }
  return ToHtml(comparison);
}

// Both must name their ranks and agree on the size of the job. A trace of a
// single process names none (-1), so two of those are before and after.
bool AreOfOneJob(const RunInfo& one, const RunInfo& other) {
  return one.rank >= 0 && other.rank >= 0 && one.rank != other.rank &&
         one.world_size == other.world_size;
}

// True if each of the two paths has one trace, of different ranks of a job.
bool AreTwoRanks(const Selection& selection) {
  const auto one = ReadOneTrace(selection.paths[0]);
  const auto other = ReadOneTrace(selection.paths[1]);
  return one.ok() && other.ok() && AreOfOneJob(one->run(), other->run());
}

// Of two paths: a comparison, unless they are files of two ranks of a job.
absl::StatusOr<std::string> PageOfTwo(const Selection& selection) {
  // With --rank, ReadRank() below would look for that rank in both files.
  if (selection.rank >= 0 && AreTwoRanks(selection)) {
    return ReportPage(selection);
  }
  const auto before = ReadRank(selection.paths[0], selection.rank);
  if (!before.ok()) return before.status();
  const auto after = ReadRank(selection.paths[1], selection.rank);
  if (!after.ok()) return after.status();
  if (AreOfOneJob(before->run(), after->run())) return ReportPage(selection);
  if (!selection.run.empty() || selection.cycle >= 0) {
    return absl::InvalidArgumentError(
        "a comparison takes neither --run nor --cycle: name the two folders of "
        "the runs or cycles, or their trace files");
  }
  return ComparisonPage(*before, *after);
}

int Write(const std::string& page, const std::string& option) {
  const std::string file = option.empty() ? kDefaultFile : option;
  // Nothing but the page goes to standard output.
  if (file == "-") return WriteResult(page, "");
  const int status = WriteResult(page, file);
  if (status == 0) {
    std::printf("wrote %s (%zu KB)\n", Printable(file).c_str(),
                (page.size() + 999) / 1000);
  }
  return status;
}

int RunReport(const CommandWords& given) {
  const auto selection = SelectionOf(given);
  if (!selection.ok()) return UsageError(selection.status());
  if (given.arguments.empty()) {
    return UsageError(
        "report needs a trace file or a folder: stepscope report PATH...");
  }
  const absl::StatusOr<std::string> page = selection->paths.size() == 2
                                               ? PageOfTwo(*selection)
                                               : ReportPage(*selection);
  if (page.ok()) return Write(*page, given.value("--output"));
  if (absl::IsInvalidArgument(page.status()) &&
      (!selection->run.empty() || selection->cycle >= 0)) {
    return UsageError(page.status());
  }
  PrintError(page.status());
  return 1;
}

}  // namespace

const Command kReportCommand = {
    .name = "report",
    .arguments = "PATH...",
    .summary = "write the report, or a comparison, as one HTML file",
    .description =
        "Writes the report as one HTML file: it holds all that it needs, "
        "requests nothing from anywhere and can be mailed. PATH is what "
        "stepscope analyze takes; the traces of all ranks of a job become one "
        "page. Two paths that are not two ranks of a job become a comparison, "
        "like that of stepscope compare.",
    .options = kOptions,
    .exit_status =
        "0 the page was written, 1 it was not, because a trace could not be "
        "read or has no steps to compare, 2 wrong usage.",
    .run = RunReport};

}  // namespace stepscope
