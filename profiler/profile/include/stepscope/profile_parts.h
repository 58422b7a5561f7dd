// ProfileParts: the collectors, the analysis and the files of a Profile. The
// library profile_core takes them as arguments. The library profile has the
// default collectors, and profile_outputs the default analysis and files.
// plugins/inject combines profile_outputs with its own collectors.
#pragma once

#include <absl/status/status.h>
#include <stepscope/analysis.h>
#include <stepscope/collector.h>
#include <stepscope/logdir.h>
#include <stepscope/page.h>
#include <stepscope/profile.h>
#include <stepscope/ranks.h>
#include <stepscope/trace.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace stepscope {

// An analysed window and the paths of its files.
struct WindowResult {
  const Trace& trace;
  const Report& report;
  const PageDetails& page;  // of the window's trace
  const LogPaths& paths;
  const std::string& log_dir;
  // The report of all ranks of the job, without its whole_run. Null on all
  // ranks but rank 0, and if there is no such report.
  const Report* job = nullptr;
};

// Returns the report for people: `job` if it is not null, else `own`. In both
// cases whole_run is this rank's own.
inline Report ReportToShow(const Report& own, const Report* job) {
  Report shown = job != nullptr ? *job : own;
  shown.whole_run = own.whole_run;
  return shown;
}

// One file of a window. `write` runs on the background thread.
struct WindowFile {
  bool rank_0_only = false;
  bool of_job = false;  // only if WindowResult::job is set
  // The file needs only the report and the page's details, so it is written
  // again at the end of the run.
  bool of_report = false;
  std::function<absl::Status(const WindowResult& result)> write;
};

struct ProfileParts {
  // Makes the sources of events, in the order in which they start. Used if
  // ProfileOptions::collectors is not set.
  std::function<std::vector<std::unique_ptr<Collector>>(const ProfileOptions&)>
      collectors;
  // If `page` is not null, it receives the page's details of the trace.
  std::function<Report(const Trace&, PageDetails* page)> analyze;
  // The same for one of several ranks, with the data that a report of all ranks
  // needs.
  std::function<RankDigest(const Trace&, PageDetails* page)> digest;
  // The report for the terminal.
  std::function<std::string(const Report&, const TextOptions&)> to_text;
  // In the order of writing. The smallest and most useful files come first,
  // because the disk may be nearly full.
  std::vector<WindowFile> files;
  // Called on the background thread after the files of a window were written.
  // The paths are empty if the log directory cannot be used, or there is none.
  std::function<void(const WindowResult&)> on_window_end;
  // Who ends the program after a signal (signal_grace): Finish() if true, else
  // the Profile's destructor, so that the caller can show the reports before
  // that, within the grace period.
  bool finish_ends_program = true;
};

// Returns the default analysis, its text, and the files that the options
// select. No collectors.
ProfileParts ProfileOutputs(const ProfileOptions& options);

}  // namespace stepscope
