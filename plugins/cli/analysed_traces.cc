#include "analysed_traces.h"

#include <absl/status/status.h>
#include <stepscope/logdir.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "missing_traces.h"
#include "one_trace.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// Describes the damage to a file that `loss` stands for, as shown on standard
// error. (The report has the details.) Empty for other losses.
std::string DamageIn(const Loss& loss) {
  const std::string remedy = ". Copy it again, or record it again";
  if (loss.name == "truncated-file")
    return "is truncated; the report covers what could be read" + remedy;
  if (loss.name == "damaged-file")
    return "is damaged; the report covers what could be read" + remedy;
  if (loss.name == "wrong-checksum")
    return "is damaged; any value in the report may be wrong" + remedy;
  return "";
}

// The result of resolving paths: traces, each once and not yet read, and the
// files that turned out not to be traces.
struct FoundTraces {
  std::vector<AnalysedTrace> traces;
  std::vector<UnreadableFile> unreadable;
  bool is_file = false;  // one file, so the other ranks are not wanted
};

FoundTraces FindTraces(const Selection& selection, const OnError& on_error) {
  FoundTraces found;
  std::set<std::string> seen;
  for (const std::string& path : selection.paths) {
    absl::StatusOr<ResolvedRun> run =
        ResolvePath(path, selection.run, selection.cycle);
    if (!run.ok()) {
      found.unreadable.push_back({path, TextOf(run.status())});
      on_error(found.unreadable.back().why);
      continue;
    }
    for (const std::string& note : run->passed_over)
      on_error("skipped " + note);
    for (UnreadableFile& file : run->unreadable)
      found.unreadable.push_back(std::move(file));
    std::error_code error;
    found.is_file =
        selection.paths.size() == 1 && !fs::is_directory(path, error);
    const bool is_log_dir =
        fs::is_directory(fs::path(path) / "stepscope", error);
    for (const std::string& file : run->trace_files) {
      // A file may be reached through two of the paths, or through a link. It
      // is read only once, because a rank must not be counted twice.
      const fs::path canonical = fs::weakly_canonical(file, error);
      if (!seen.insert(error ? file : canonical.string()).second) continue;
      found.traces.push_back({.path = file,
                              .advice = AdviceOf(file),
                              .log_dir = is_log_dir ? path : "",
                              .digest = {}});
    }
  }
  return found;
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
  // Only in a profile's own folders are the two side by side.
  if (trace.parent_path().filename() != "trace") return "";
  const std::string name = trace.filename().string();
  const fs::path advice = trace.parent_path().parent_path() / "advice" /
                          (name.substr(0, name.find(".json")) + ".json");
  std::error_code error;
  return fs::exists(advice, error) ? advice.string() : "";
}

AnalysedTraces AnalyseAll(const Selection& selection, const OnError& on_error,
                          DrawnRank* drawn) {
  if (drawn != nullptr) drawn->wanted = selection.rank;
  FoundTraces found = FindTraces(selection, on_error);
  std::vector<std::string> paths;
  paths.reserve(found.traces.size());
  for (const AnalysedTrace& trace : found.traces) paths.push_back(trace.path);
  std::vector<absl::StatusOr<RankDigest>> digests =
      DigestAll(paths, selection.machine, drawn);
  AnalysedTraces analysed;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!digests[i].ok()) {
      found.unreadable.push_back({paths[i], TextOf(digests[i].status())});
      on_error(found.unreadable.back().why);
      continue;
    }
    // Also printed on standard error, because the report may be a file that is
    // not read at once.
    for (const Loss& loss : digests[i]->report.losses) {
      const std::string damage = DamageIn(loss);
      if (selection.names_damage && !damage.empty())
        on_error(paths[i] + " " + damage);
    }
    analysed.read.push_back(std::move(found.traces[i]));
    analysed.read.back().digest = *std::move(digests[i]);
  }
  // For a single file the other ranks are not missed.
  if (found.is_file) return analysed;
  std::vector<const RunInfo*> runs;
  for (const AnalysedTrace& trace : analysed.read)
    runs.push_back(&trace.report().run);
  analysed.missing = WhyMissing(
      runs, found.unreadable,
      selection.paths.size() == 1 ? selection.paths[0] : "the given paths");
  return analysed;
}

bool ChooseRank(int32_t rank, AnalysedTraces& traces, const OnError& on_error) {
  std::vector<int32_t> found;
  for (const AnalysedTrace& trace : traces.read)
    found.push_back(trace.report().run.rank);
  std::erase_if(traces.read, [&](const AnalysedTrace& trace) {
    return trace.report().run.rank != rank;
  });
  // The report is about one rank, so the others need not be reported as
  // missing.
  traces.missing.clear();
  if (!traces.read.empty()) return true;
  on_error("no trace of rank " + std::to_string(rank) + "; " +
           RanksThere(found));
  return false;
}

}  // namespace stepscope
