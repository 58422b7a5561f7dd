// Finds the runs below a folder.
#include <absl/status/status.h>
#include <stepscope/logdir.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "files/folders.h"
#include "files/trace_folder.h"
#include "rows/run_start.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

// Deeper folders are somebody's data, not runs.
constexpr int kMostLevels = 4;

// Returns the number in "rank12.json.gz" and "rank12-7.json.gz"; -1 for other
// names.
int32_t RankInName(std::string_view name) {
  constexpr std::string_view kRank = "rank";
  if (!name.starts_with(kRank)) return -1;
  name.remove_prefix(kRank.size());
  int32_t rank = -1;
  std::from_chars(name.data(), name.data() + name.size(), rank);
  return rank;
}

// Returns the traces in `folder`, which stepscope wrote, sorted by the rank in
// their names.
std::vector<std::string> TracesOfWindow(const fs::path& folder) {
  std::vector<std::pair<int32_t, std::string>> found;
  for (const std::string& name : FilesIn(folder)) {
    // A file that is being written has another ending.
    if (name.ends_with(".json.gz") || name.ends_with(".json"))
      found.emplace_back(RankInName(name), (folder / name).string());
  }
  std::ranges::sort(found);
  std::vector<std::string> paths;
  for (auto& [rank, path] : found) paths.push_back(std::move(path));
  return paths;
}

// Returns the run in LOGDIR/stepscope/RUN.
FoundRun OwnRun(const fs::path& log_dir, const fs::path& folder) {
  const std::string run = folder.filename().string();
  FoundRun found;
  // A view into `run`. A number may follow it if two runs started in the same
  // second.
  const std::string_view start = StartOfRun(run);
  found.start = std::string(start);
  found.name =
      start.empty()
          ? run
          : run.substr(0, static_cast<size_t>(start.data() - run.data()));
  while (found.name.ends_with('_')) found.name.pop_back();
  found.folder = folder.string();
  found.log_dir = log_dir.string();
  for (int32_t cycle : CyclesOf(folder)) {
    const fs::path window = folder / ("c" + std::to_string(cycle));
    std::vector<std::string> traces = TracesOfWindow(window / "trace");
    if (traces.empty()) continue;
    found.windows.push_back({.cycle = cycle,
                             .folder = window.string(),
                             .traces = std::move(traces)});
  }
  return found;
}

// True if the names in a folder suggest traces. A plain .json does not count,
// because only its content would show what it is.
bool MayHoldTraces(const fs::path& folder) {
  return std::ranges::any_of(FilesIn(folder), [](std::string_view name) {
    return name.ends_with(".json.gz") || name.ends_with(".json.zst") ||
           name.ends_with(".pt.trace.json") || name.ends_with(".xplane.pb") ||
           (name.ends_with(".json") && RankInName(name) >= 0);
  });
}

void FindRuns(const fs::path& folder, int level, std::vector<FoundRun>& runs) {
  std::set<std::string> passed_over = {"plugins", std::string(kOwnFolder)};
  if (IsFolder(folder / kOwnFolder)) {
    for (const std::string& run : FoldersIn(folder / kOwnFolder)) {
      runs.push_back(OwnRun(folder, folder / kOwnFolder / run));
      passed_over.insert(run);  // the same run for the PyTorch plugin
    }
  } else if (MayHoldTraces(folder)) {
    ResolvedRun found = TracesIn(folder.string(), -1);
    if (!found.trace_files.empty()) {
      FoundRun run = {.name = folder.filename().string(),
                      .start = "",
                      .folder = folder.string(),
                      .log_dir = "",
                      .windows = {}};
      run.windows.push_back({.cycle = found.cycle,
                             .folder = folder.string(),
                             .traces = std::move(found.trace_files)});
      runs.push_back(std::move(run));
    }
  }
  if (level == kMostLevels) return;
  for (const std::string& name : FoldersIn(folder)) {
    std::error_code error;
    if (passed_over.contains(name) || name.starts_with('.') ||
        fs::is_symlink(folder / name, error)) {
      continue;
    }
    FindRuns(folder / name, level + 1, runs);
  }
}

}  // namespace

absl::StatusOr<std::vector<FoundRun>> RunsIn(const std::string& dir) {
  if (!IsFolder(dir))
    return absl::NotFoundError("no folder " + dir + "; check the path");
  fs::path place = fs::path(dir).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();  // "dir/"
  std::vector<FoundRun> runs;
  // `dir` may be LOGDIR/stepscope itself.
  if (place.filename() == kOwnFolder && place.has_parent_path())
    place = place.parent_path();
  FindRuns(place, 0, runs);
  std::ranges::sort(runs, {}, [](const FoundRun& run) {
    return std::make_tuple(std::string_view(run.start),
                           std::string_view(run.folder));
  });
  return runs;
}

}  // namespace stepscope
