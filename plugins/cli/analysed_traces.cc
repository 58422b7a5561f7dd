#include "analysed_traces.h"

#include <absl/status/status.h>
#include <stepscope/logdir.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace stepscope {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// The traces that the paths stand for, each once and not yet read.
std::vector<AnalysedTrace> FindTraces(const Selection& selection,
                                      const OnError& on_error) {
  std::vector<AnalysedTrace> traces;
  std::set<std::string> seen;
  for (const std::string& path : selection.paths) {
    absl::StatusOr<ResolvedRun> run =
        ResolvePath(path, selection.run, selection.cycle);
    if (!run.ok()) {
      on_error(TextOf(run.status()));
      continue;
    }
    for (const std::string& note : run->passed_over)
      on_error("skipped " + note);
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

}  // namespace

absl::StatusOr<Selection> SelectionOf(const CommandWords& given) {
  const auto cycle = NumberOf(given, kCycleOption.name, -1);
  if (!cycle.ok()) return cycle.status();
  const auto rank = NumberOf(given, "--rank", -1);
  if (!rank.ok()) return rank.status();
  const auto cores = NumberOf(given, kCoresOption.name, -1);
  if (!cores.ok()) return cores.status();
  const auto threads = NumberOf(given, kThreadsOption.name, -1);
  if (!threads.ok()) return threads.status();
  return Selection{.paths = given.arguments,
                   .run = given.value(kRunOption.name),
                   .cycle = *cycle,
                   .rank = *rank,
                   .machine = {.cores = *cores, .threads = *threads}};
}

std::string AdviceOf(const std::string& path) {
  const fs::path trace = path;
  if (trace.parent_path().filename() != "trace") return "";
  const std::string name = trace.filename().string();
  const fs::path advice = trace.parent_path().parent_path() / "advice" /
                          (name.substr(0, name.find(".json")) + ".json");
  std::error_code error;
  return fs::exists(advice, error) ? advice.string() : "";
}

std::vector<AnalysedTrace> AnalyseAll(const Selection& selection,
                                      const OnError& on_error,
                                      DrawnRank* drawn) {
  if (drawn != nullptr) drawn->wanted = selection.rank;
  std::vector<AnalysedTrace> traces = FindTraces(selection, on_error);
  std::vector<std::string> paths;
  paths.reserve(traces.size());
  for (const AnalysedTrace& trace : traces) paths.push_back(trace.path);
  std::vector<absl::StatusOr<RankDigest>> digests =
      DigestAll(paths, selection.machine, drawn);
  std::vector<AnalysedTrace> results;
  for (size_t i = 0; i < traces.size(); ++i) {
    if (!digests[i].ok()) {
      on_error(TextOf(digests[i].status()));
      continue;
    }
    // Said on standard error as well: the report may be a file that nobody
    // reads at once.
    for (const Loss& loss : digests[i]->report.losses) {
      if (loss.name == "truncated-file" || loss.name == "damaged-file" ||
          loss.name == "wrong-checksum")
        on_error(traces[i].path + ": " + loss.detail);
    }
    results.push_back(std::move(traces[i]));
    results.back().digest = *std::move(digests[i]);
  }
  return results;
}

bool ChooseRank(int32_t rank, std::vector<AnalysedTrace>& results,
                const OnError& on_error) {
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
  on_error("no trace of rank " + std::to_string(rank) +
           "; the paths have traces of these ranks: " + found);
  return false;
}

}  // namespace stepscope
