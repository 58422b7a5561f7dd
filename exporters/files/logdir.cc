#include <absl/status/status.h>
#include <stepscope/logdir.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "files/folders.h"
#include "files/trace_folder.h"
#include "rows/run_start.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

std::string FixedWidth(int32_t number, int digits) {
  char text[16];
  std::snprintf(text, sizeof(text), "%0*d", digits, std::max(number, 0));
  return text;
}

// Returns `text` with '-' for every character that is unsafe in a file name or
// a shell: users' names become folders, which people type into shells.
std::string FileName(std::string_view text) {
  std::string name;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                       c == '.';
    name += plain ? c : '-';
  }
  return name;
}

std::string HostName(const std::string& host) {
  return host.empty() ? "host" : FileName(host);
}

// Sorts the oldest run first. Runs without a start time (somebody renamed them)
// come before all others, by name. Start times can be sorted as text, because
// the year comes first and all fields have a fixed width.
void SortByStart(std::vector<std::string>* runs) {
  std::ranges::sort(*runs, {}, [](const std::string& run) {
    return std::make_pair(StartOfRun(run), std::string_view(run));
  });
}

// Joins the names for a message. The first ones of many are enough.
std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kMostNames = 21;  // all that BoundNotes() leaves
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i)
    text += (text.empty() ? "" : ", ") + names[i];
  if (names.size() > kMostNames)
    text += " and " + std::to_string(names.size() - kMostNames) + " more";
  return text.empty() ? "none" : text;
}

// Returns the traces of all ranks in LOGDIR/stepscope/RUN/c<cycle>.
absl::StatusOr<ResolvedRun> CycleFolder(const fs::path& path, int32_t cycle) {
  ResolvedRun run = TracesIn((path / "trace").string(), -1);
  run.run = path.parent_path().filename().string();
  run.cycle = cycle;
  if (run.trace_files.empty()) {
    return absl::NotFoundError("no trace in " + (path / "trace").string() +
                               "; skipped: " + Listed(run.passed_over));
  }
  return run;
}

// How much of a window has been written.
enum class Written : uint8_t { kNothing, kPart, kAll };

// A writer renames its file once it is complete. So a file that is still being
// written, or whose process was killed, has its temporary name.
Written StateOf(const fs::path& cycle) {
  const fs::path folder = cycle / "trace";
  const bool has_traces = std::ranges::any_of(
      FilesIn(folder),
      [](std::string_view name) { return !name.ends_with(kTemporaryEnding); });
  if (!has_traces) return Written::kNothing;
  return IsUnfinished(folder) ? Written::kPart : Written::kAll;
}

fs::path CyclePath(const fs::path& run, int32_t cycle) {
  return run / ("c" + std::to_string(cycle));
}

// Returns the last cycle of the run that is complete, else the last one with
// any trace, else -1. Sets `state` to the state of that cycle.
int32_t BestCycle(const fs::path& run, const std::vector<int32_t>& cycles,
                  Written* state) {
  int32_t best = -1;
  *state = Written::kNothing;
  for (auto it = cycles.rbegin(); it != cycles.rend(); ++it) {
    const Written now = StateOf(CyclePath(run, *it));
    if (now <= *state) continue;
    best = *it;
    *state = now;
    if (now == Written::kAll) break;
  }
  return best;
}

// Returns the traces of `cycle` of LOGDIR/stepscope/RUN or, if it is negative,
// of the cycle that BestCycle() chooses.
absl::StatusOr<ResolvedRun> RunFolder(const fs::path& path, int32_t cycle) {
  const std::vector<int32_t> cycles = CyclesOf(path);
  std::vector<std::string> names;
  names.reserve(cycles.size());
  for (int32_t each : cycles) names.push_back(std::to_string(each));
  if (cycles.empty()) {
    return absl::NotFoundError("no cycle with traces in " + path.string() +
                               " (looked for c<cycle>/trace/rank<r>.json.gz); "
                               "it may still be recording");
  }
  std::vector<std::string> passed_over;
  if (cycle < 0) {
    Written state;
    const int32_t best = BestCycle(path, cycles, &state);
    cycle = best < 0 ? cycles.back() : best;
    for (auto it = cycles.rbegin(); *it != cycle; ++it) {
      passed_over.push_back(CyclePath(path, *it).string() +
                            ": it is incomplete (still being written, or its "
                            "writer was killed); choose it with --cycle " +
                            std::to_string(*it));
    }
    BoundNotes(path.string(), &passed_over);
  }
  if (std::find(cycles.begin(), cycles.end(), cycle) == cycles.end()) {
    return absl::NotFoundError("no cycle " + std::to_string(cycle) + " in " +
                               path.string() + "; there are: " + Listed(names));
  }
  absl::StatusOr<ResolvedRun> found =
      CycleFolder(CyclePath(path, cycle), cycle);
  if (found.ok()) {
    found->passed_over.insert(found->passed_over.begin(), passed_over.begin(),
                              passed_over.end());
  }
  return found;
}

// Returns the traces of `run` in LOGDIR/stepscope. If `run` is empty, takes the
// newest run with a complete window, else the newest one with any trace. The
// result names the newer runs that were passed over because they are still
// being recorded or were killed.
absl::StatusOr<ResolvedRun> OwnFolder(const fs::path& path,
                                      const std::string& run, int32_t cycle) {
  std::vector<std::string> runs = FoldersIn(path);
  SortByStart(&runs);
  if (!run.empty()) {
    if (std::find(runs.begin(), runs.end(), run) == runs.end()) {
      return absl::NotFoundError("no run '" + run + "' in " + path.string() +
                                 "; there are: " + Listed(runs));
    }
    return RunFolder(path / run, cycle);
  }
  std::vector<std::string> passed_over;
  std::string best;
  Written best_state = Written::kNothing;
  for (auto it = runs.rbegin(); it != runs.rend(); ++it) {
    Written state = Written::kNothing;
    BestCycle(path / *it, CyclesOf(path / *it), &state);
    if (state > best_state) {
      best = *it;
      best_state = state;
    }
    if (state == Written::kAll) break;
  }
  for (auto it = runs.rbegin(); it != runs.rend() && *it != best; ++it) {
    passed_over.push_back(
        (path / *it).string() +
        (CyclesOf(path / *it).empty()
             ? ": it has no traces yet"
             : ": it is incomplete (still being written, or its writer was "
               "killed); choose it with --run " +
                   *it));
  }
  if (best.empty()) {
    return absl::NotFoundError("no run with traces in " + path.string() +
                               "; runs there: " + Listed(runs));
  }
  BoundNotes(path.string(), &passed_over);
  absl::StatusOr<ResolvedRun> found = RunFolder(path / best, cycle);
  if (found.ok()) {
    found->passed_over.insert(found->passed_over.begin(), passed_over.begin(),
                              passed_over.end());
  }
  return found;
}

// Errors: NotFound if `run` or `cycle` was asked for and `path`, which is
// `what`, is another one or has none. Empty and negative values ask for
// nothing.
absl::Status IsAskedFor(const std::string& path, const std::string& what,
                        const std::string& run, const std::string& its_run,
                        int32_t cycle, int32_t its_cycle) {
  std::string asked;
  if (!run.empty() && run != its_run) asked = "run '" + run + "'";
  if (cycle >= 0 && cycle != its_cycle) {
    asked +=
        (asked.empty() ? "" : " and no ") + ("cycle " + std::to_string(cycle));
  }
  if (asked.empty()) return absl::OkStatus();
  return absl::NotFoundError("no " + asked + " in " + path + ": it is " + what +
                             "; --run and --cycle choose in a log directory");
}

// Returns the traces in a folder that stepscope did not write: a folder of
// torch.profiler, or of files that somebody copied together.
absl::StatusOr<ResolvedRun> ForeignFolder(const fs::path& path, int32_t cycle) {
  ResolvedRun run = TracesIn(path.string(), cycle);
  run.run = path.filename().string();
  if (!run.trace_files.empty()) return run;
  std::string message =
      "no trace in " + path.string() +
      " (looked for *.json, *.json.gz and *.json.zst of torch.profiler or "
      "stepscope, then for *.xplane.pb)";
  if (!run.passed_over.empty())
    message += "; skipped: " + Listed(run.passed_over);
  std::vector<std::string> folders;
  for (const std::string& name : FoldersIn(path)) {
    if (!TracesIn((path / name).string(), -1).trace_files.empty())
      folders.push_back((path / name).string());
  }
  if (!folders.empty())
    message += "; these folders have traces: " + Listed(folders);
  return absl::NotFoundError(message);
}

// True for ".../stepscope/RUN/c0".
bool IsCycleFolder(const fs::path& path) {
  return CycleOf(path.filename().string()) >= 0 && IsFolder(path / "trace");
}

}  // namespace

std::string RunName(std::string_view name, std::string_view start) {
  constexpr size_t kMostCharacters = 64;
  std::string run = FileName(name);
  // A folder whose name begins with a dot is hidden; one whose name begins with
  // a dash is taken for an option.
  run.erase(0, std::min(run.find_first_not_of(".-"), run.size()));
  run.resize(std::min(run.size(), kMostCharacters));
  return run.empty() ? std::string(start) : run + "_" + std::string(start);
}

LogPaths PathsFor(const std::string& log_dir, const std::string& run,
                  const std::string& host, int32_t rank, int32_t cycle,
                  const std::string& unique) {
  const fs::path root(log_dir);
  const std::string name = HostName(host);
  const std::string rank_text = std::to_string(std::max(rank, 0));
  const std::string tail = unique.empty() ? "" : "-" + FileName(unique);
  const fs::path own =
      root / kOwnFolder / run / ("c" + std::to_string(std::max(cycle, 0)));
  LogPaths paths;
  // The plugin sorts workers and spans as text, so both have a fixed width. It
  // reads the digits after the last "_" as the rank.
  paths.chrome_tb = (root / run /
                     (name + tail + "_" + FixedWidth(rank, 5) + "." +
                      FixedWidth(cycle, 6) + ".pt.trace.json.gz"))
                        .string();
  paths.xspace = (root / "plugins" / "profile" /
                  (run + "_c" + std::to_string(std::max(cycle, 0))) /
                  (name + "_rank" + rank_text + tail + ".xplane.pb"))
                     .string();
  paths.chrome_kineto =
      (own / "trace" / ("rank" + rank_text + tail + ".json.gz")).string();
  paths.advice =
      (own / "advice" / ("rank" + rank_text + tail + ".json")).string();
  paths.page =
      (own / "advice" / ("rank" + rank_text + tail + ".html")).string();
  paths.digest =
      (own / "digest" / ("rank" + rank_text + tail + ".pb")).string();
  paths.report = (own / ("report" + tail + ".txt")).string();
  paths.job_report = (own / ("report" + tail + ".json")).string();
  paths.job_page = (own / ("report" + tail + ".html")).string();
  paths.step_times =
      (root / kOwnFolder / run / ("steps_rank" + rank_text + tail + ".jsonl"))
          .string();
  return paths;
}

absl::StatusOr<ResolvedRun> ResolvePath(const std::string& path,
                                        const std::string& run, int32_t cycle) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return absl::NotFoundError(
        "cannot read " + path + ": " +
        (error ? error.message() : "No such file or directory") +
        "; give a trace file or a folder");
  }
  fs::path place = fs::path(path).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();  // "dir/"
  if (place == ".") place = fs::current_path(error);
  if (!fs::is_directory(status)) {
    const absl::Status asked = IsAskedFor(path, "one file", run, "", cycle, -1);
    if (!asked.ok()) return asked;
    ResolvedRun file;
    file.run = place.parent_path().filename().string();
    file.trace_files.push_back(path);
    return file;
  }
  // Tries, in this order: a log directory, a cycle, a run, a folder of runs,
  // and at last any folder with traces.
  if (IsFolder(place / kOwnFolder))
    return OwnFolder(place / kOwnFolder, run, cycle);
  const fs::path window =
      place.filename() == "trace" ? place.parent_path() : place;
  if (IsCycleFolder(window)) {
    const int32_t its_cycle = CycleOf(window.filename().string());
    const absl::Status asked =
        IsAskedFor(path, "one window", run,
                   window.parent_path().filename().string(), cycle, its_cycle);
    if (!asked.ok()) return asked;
    return CycleFolder(window, its_cycle);
  }
  if (!CyclesOf(place).empty()) {
    const absl::Status asked = IsAskedFor(
        path, "one run", run, place.filename().string(), cycle, cycle);
    if (!asked.ok()) return asked;
    return RunFolder(place, cycle);
  }
  const std::vector<std::string> folders = FoldersIn(place);
  const bool holds_runs = std::any_of(
      folders.begin(), folders.end(),
      [&](const std::string& name) { return !CyclesOf(place / name).empty(); });
  if (holds_runs) return OwnFolder(place, run, cycle);
  const absl::Status asked = IsAskedFor(path, "a folder of traces without runs",
                                        run, "", cycle, cycle);
  if (!asked.ok()) return asked;
  return ForeignFolder(place, cycle);
}

}  // namespace stepscope
