#include "one_trace.h"

#include <stepscope/logdir.h>
#include <stepscope/read.h>

#include <algorithm>

namespace stepscope {
namespace {

constexpr size_t kNamed = 3;

}  // namespace

absl::StatusOr<Trace> ReadOneTrace(const std::string& path) {
  const absl::StatusOr<ResolvedRun> run = ResolvePath(path);
  if (!run.ok()) return run.status();
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

}  // namespace stepscope
