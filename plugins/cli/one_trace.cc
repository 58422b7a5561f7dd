#include "one_trace.h"

#include <stepscope/read.h>

#include <algorithm>

#include "errors.h"

namespace stepscope {
namespace {

constexpr size_t kNamed = 3;

}  // namespace

void SaySkipped(const ResolvedRun& run) {
  for (const std::string& note : run.passed_over) PrintError("skipped " + note);
}

absl::StatusOr<Trace> ReadOneTrace(const std::string& path) {
  const absl::StatusOr<ResolvedRun> run = ResolvePath(path);
  if (!run.ok()) return run.status();
  SaySkipped(*run);
  const std::vector<std::string>& files = run->trace_files;
  if (files.size() == 1) return ReadTrace(files.front());
  std::string names;
  for (size_t i = 0; i < std::min(files.size(), kNamed); ++i)
    names += (names.empty() ? "" : ", ") + files[i];
  if (files.size() > kNamed) names += ", ...";
  return absl::InvalidArgumentError(path + " holds " +
                                    std::to_string(files.size()) +
                                    " traces; choose one of them: " + names);
}

absl::StatusOr<Trace> ReadRank(const std::string& path, int32_t rank) {
  const absl::StatusOr<ResolvedRun> run = ResolvePath(path);
  if (!run.ok()) return run.status();
  SaySkipped(*run);
  std::vector<int32_t> found;
  for (const std::string& file : run->trace_files) {
    absl::StatusOr<Trace> trace = ReadTrace(file);
    if (rank < 0 || !trace.ok() || trace->run().rank == rank) return trace;
    found.push_back(trace->run().rank);
  }
  return absl::NotFoundError(path + " has no trace of rank " +
                             std::to_string(rank) + "; " + RanksThere(found));
}

std::string RanksThere(const std::vector<int32_t>& ranks) {
  std::string known;
  for (const int32_t rank : ranks) {
    if (rank >= 0) known += (known.empty() ? "" : ", ") + std::to_string(rank);
  }
  const auto unknown =
      std::ranges::count_if(ranks, [](int32_t rank) { return rank < 0; });
  if (known.empty()) {
    return unknown == 1
               ? "this trace does not name its rank: leave --rank out"
               : "these traces do not name their ranks: leave --rank out";
  }
  return "the paths have traces of these ranks: " + known +
         (unknown == 0   ? ""
          : unknown == 1 ? ", and one that does not name its rank"
                         : ", and " + std::to_string(unknown) +
                               " that do not name their ranks");
}

}  // namespace stepscope
