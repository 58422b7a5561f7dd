// The log directory: which file goes where, and which files a path given by a
// user stands for.
//
//   LOGDIR/RUN/<host>_<rank>.<cycle>.pt.trace.json.gz
//       Chrome trace for the PyTorch plugin of TensorBoard
//   LOGDIR/plugins/profile/RUN_c<cycle>/<host>_rank<rank>.xplane.pb
//       XSpace for XProf
//   LOGDIR/stepscope/RUN/c<cycle>/
//       trace/rank<rank>.json.gz   Chrome trace for stepscope, Perfetto, HTA
//       advice/rank<rank>.json     the findings of the rank
//       advice/rank<rank>.html     the same as a page for a browser
//       digest/rank<rank>.pb       what rank 0 needs from the rank, if the job
//                                  has several (ranks/proto/rank_digest.proto)
//       report.txt                 the printed report
//       report.json, report.html   the report of all ranks, if there are
//                                  several
//   LOGDIR/stepscope/RUN/steps_rank<rank>.jsonl
//       the time of each step of the run, where the program asked for it
//
// RUN is <name>_<start time>, the same on all ranks of a job. Older versions
// wrote the start time alone.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// Returns RUN for a program called `name` that started at `start`, a local time
// as YYYY_MM_DD_HH_MM_SS: "resnet_2026_01_31_14_05_09". Characters of `name`
// other than letters, digits, '.', '_' and '-' become '-'; then '.' and '-' at
// the start are dropped, and the rest is cut at 64 characters. RUN is `start`
// alone if nothing of the name is left.
std::string RunName(std::string_view name, std::string_view start);

// The files of one rank and cycle.
struct LogPaths {
  std::string chrome_tb;
  std::string xspace;
  std::string chrome_kineto;
  std::string advice;
  std::string page;
  std::string digest;
  std::string report;
  std::string job_report;
  std::string job_page;
  std::string step_times;  // of all cycles
};
// Never fails: characters of `host` that do not belong in a file name become
// '-', and negative numbers become 0. `unique` is appended to all names; it is
// for two processes that would otherwise write the same file.
LogPaths PathsFor(const std::string& log_dir, const std::string& run,
                  const std::string& host, int32_t rank, int32_t cycle,
                  const std::string& unique = "");

// A recorded window of a run.
struct RunWindow {
  int32_t cycle = -1;               // -1 in a folder that has no cycles
  std::string folder;               // can be given to ResolvePath()
  std::vector<std::string> traces;  // one per rank, sorted by rank
};

// A run of a log directory, or a folder with one trace per rank.
struct FoundRun {
  std::string name;     // "resnet": RUN without its start time
  std::string start;    // "2026_01_31_14_05_09"; empty if there is none
  std::string folder;   // LOGDIR/stepscope/RUN
  std::string log_dir;  // LOGDIR; empty for a folder that is in none
  std::vector<RunWindow> windows;  // empty while none has been written
};

// Returns all runs in `dir` and in the folders below it, oldest first. Symbolic
// links to folders are not followed. Opens files only in folders outside a log
// directory, to read their headers. May be called from any thread. Errors:
// NotFound (no such folder).
absl::StatusOr<std::vector<FoundRun>> RunsIn(const std::string& dir);

// A file that may be a trace of a rank, and the sentence that says why it
// cannot be read.
struct UnreadableFile {
  std::string path;
  std::string why;
};

// What ResolvePath() chose.
struct ResolvedRun {
  std::string run;                       // RUN, or the folder's name
  int32_t cycle = -1;                    // -1 if the layout has none
  std::vector<std::string> trace_files;  // one per rank, sorted by rank
  std::vector<std::string> passed_over;  // "<path>: <why it was not taken>"
  // All files that cannot be read; passed_over names only the first of them.
  std::vector<UnreadableFile> unreadable = {};
};

// Finds the traces that `path` stands for: a trace file, a log directory, a
// folder inside one, or a folder with one trace per rank.
//
// If `run` is empty, takes the newest run by the start time in its name. If
// `cycle` is negative, takes the last cycle. Both prefer complete runs and
// cycles to those that are still being written or whose process was killed
// while writing. Opens each file of a folder of traces to read its header, but
// no pipes, sockets and devices. passed_over names some twenty files at most.
// There is no state, so any thread may call it. Errors: NotFound (the message
// says what was looked for), also for a `run` or `cycle` that `path` lacks,
// such as those of a single file.
absl::StatusOr<ResolvedRun> ResolvePath(const std::string& path,
                                        const std::string& run = "",
                                        int32_t cycle = -1);

}  // namespace stepscope
