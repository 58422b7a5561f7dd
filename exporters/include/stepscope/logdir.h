// The log directory: which file goes where, and which files a path given by a
// user means.
//
//   LOGDIR/RUN/<host>_<rank>.<span>.pt.trace.json.gz            tb flavour, for
//   the PyTorch plugin of TensorBoard
//   LOGDIR/plugins/profile/RUN_c<cycle>/<host>_rank<rank>.xplane.pb
//   LOGDIR/stepscope/RUN/c<cycle>/trace/rank<rank>.json.gz      kineto flavour
//   LOGDIR/stepscope/RUN/c<cycle>/advice/rank<rank>.json
//   LOGDIR/stepscope/RUN/c<cycle>/report.txt
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// The paths one rank writes for one cycle. `unique` is appended where two
// processes would write the same name.
struct LogPaths {
  std::string chrome_tb;
  std::string xspace;
  std::string chrome_kineto;
  std::string advice;
  std::string report;
};
LogPaths PathsFor(const std::string& log_dir, const std::string& run,
                  const std::string& host, int32_t rank, int32_t cycle,
                  const std::string& unique = "");

// What ResolvePath chose.
struct ResolvedRun {
  std::string run;                       // RUN, or the folder's name
  int32_t cycle = -1;                    // -1 if the layout has none
  std::vector<std::string> trace_files;  // one per rank, sorted
  std::vector<std::string>
      passed_over;  // files that are no traces, with the reason
};

// `path` is a trace file, a log directory, a folder inside one, or a folder of
// per-rank traces. An empty `run` takes the newest, a negative `cycle` the
// last. Errors: NotFound (says what was looked for), InvalidArgument.
absl::StatusOr<ResolvedRun> ResolvePath(const std::string& path,
                                        const std::string& run = "",
                                        int32_t cycle = -1);

}  // namespace stepscope
