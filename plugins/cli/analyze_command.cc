#include <absl/status/status.h>
#include <stepscope/logdir.h>
#include <stepscope/ranks.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "analyze_output.h"
#include "command_words.h"
#include "commands.h"
#include "digest.h"
#include "errors.h"
#include "output.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

constexpr OptionName kOptions[] = {{"--format"},
                                   {"--output", true, "-o"},
                                   {"--verbose", false, "-v"},
                                   {"--rank"},
                                   {"--run"},
                                   {"--cycle"}};
constexpr std::string_view kFormats[] = {"text", "json", "markdown"};

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
  --format text|json|markdown  format of the report (default: text). json is one
                               object, or a list of objects for traces that do
                               not belong to one job
  --output FILE, -o FILE       write the report to FILE
  --verbose, -v                include notes, skipped rules and every example
  --rank N                     report on rank N alone
  --run RUN                    run of the log directory (default: the newest)
  --cycle N                    recorded cycle (default: the last)
  --help, -h                   print this text

Colours are used on a terminal unless NO_COLOR is set.
Exit status: 0 at least one trace was analysed, 1 none could be read or the
report could not be written, 2 wrong usage.
)";

// Which traces to analyse, and of them which rank.
struct Selection {
  std::vector<std::string> paths;
  std::string run;     // empty: the newest
  int32_t cycle = -1;  // negative: the last
  int32_t rank = -1;   // negative: all
};

// ".../trace/rank3.json.gz" -> ".../advice/rank3.json", if it is there.
std::string AdviceOf(const fs::path& trace) {
  if (trace.parent_path().filename() != "trace") return "";
  const std::string name = trace.filename().string();
  const fs::path advice = trace.parent_path().parent_path() / "advice" /
                          (name.substr(0, name.find(".json")) + ".json");
  std::error_code error;
  return fs::exists(advice, error) ? advice.string() : "";
}

// The traces that the paths stand for, each once and not yet read.
std::vector<AnalysedTrace> FindTraces(const Selection& selection) {
  std::vector<AnalysedTrace> traces;
  std::set<std::string> seen;
  for (const std::string& path : selection.paths) {
    absl::StatusOr<ResolvedRun> run =
        ResolvePath(path, selection.run, selection.cycle);
    if (!run.ok()) {
      PrintError(run.status());
      continue;
    }
    for (const std::string& note : run->passed_over)
      PrintError("skipped " + note);
    std::error_code error;
    const bool is_log_dir =
        fs::is_directory(fs::path(path) / "stepscope", error);
    for (const std::string& file : run->trace_files) {
      const fs::path canonical = fs::weakly_canonical(file, error);
      if (!seen.insert(error ? file : canonical.string()).second) continue;
      traces.push_back({.path = file,
                        .advice = AdviceOf(file),
                        .log_dir = is_log_dir ? path : "",
                        .digest = {}});
    }
  }
  return traces;
}

// Those of FindTraces() that could be read, analysed.
std::vector<AnalysedTrace> AnalyseAll(const Selection& selection) {
  std::vector<AnalysedTrace> traces = FindTraces(selection);
  std::vector<std::string> paths;
  for (const AnalysedTrace& trace : traces) paths.push_back(trace.path);
  std::vector<absl::StatusOr<RankDigest>> digests = DigestAll(paths);
  std::vector<AnalysedTrace> results;
  for (size_t i = 0; i < traces.size(); ++i) {
    if (!digests[i].ok()) {
      PrintError(digests[i].status());
      continue;
    }
    for (const Loss& loss : digests[i]->report.losses) {
      if (loss.name == "truncated-file")
        PrintError(traces[i].path + ": " + loss.detail);
    }
    results.push_back(std::move(traces[i]));
    results.back().digest = *std::move(digests[i]);
  }
  return results;
}

// Drops all ranks but `rank`; false (after an error message) if it is missing.
bool ChooseRank(int32_t rank, std::vector<AnalysedTrace>& results) {
  std::string found;
  for (const AnalysedTrace& result : results) {
    if (result.report().run.rank == rank) continue;
    found +=
        (found.empty() ? "" : ", ") + std::to_string(result.report().run.rank);
  }
  std::erase_if(results, [&](const AnalysedTrace& result) {
    return result.report().run.rank != rank;
  });
  if (!results.empty()) return true;
  PrintError("no trace of rank " + std::to_string(rank) +
             "; the paths have traces of these ranks: " + found);
  return false;
}

int Run(const Selection& selection, AnalysisOutput output,
        const std::string& file) {
  std::vector<AnalysedTrace> results = AnalyseAll(selection);
  if (results.empty()) return 1;
  if (selection.rank >= 0 && !ChooseRank(selection.rank, results)) return 1;
  output.to_stdout = file.empty();
  return WriteResult(AnalysisText(results, output), file);
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
  if (given->arguments.empty()) {
    return UsageError(
        "analyze needs a trace file or a folder: stepscope analyze PATH...");
  }
  return Run({.paths = given->arguments,
              .run = given->value("--run"),
              .cycle = *cycle,
              .rank = *rank},
             {.format = static_cast<ReportFormat>(*format),
              .verbose = given->has("--verbose")},
             given->value("--output"));
}

}  // namespace stepscope
