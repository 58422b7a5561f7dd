// ProfileParts: the collectors, the analysis and the files of a Profile. The
// core (library profile_core) takes them as arguments. The library profile has
// the default collectors, profile_outputs the default analysis and files;
// plugins/inject combines the latter with collectors of its own.
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
  // The report of all ranks of the job, without its whole_run; null on other
  // ranks than rank 0, and where there is none.
  const Report* job = nullptr;
};

// The report for people: `job`, if it is not null, else `own`. The times of the
// whole run are this rank's own in both.
inline Report ReportToShow(const Report& own, const Report* job) {
  Report shown = job != nullptr ? *job : own;
  shown.whole_run = own.whole_run;
  return shown;
}

// One file of a window. `write` is called on the background thread.
struct WindowFile {
  bool rank_0_only = false;
  bool of_job = false;  // only where WindowResult::job is there
  // It needs only the report and the page's details: written again when the run
  // has ended.
  bool of_report = false;
  std::function<absl::Status(const WindowResult& result)> write;
};

struct ProfileParts {
  // The sources of events in the order they start, where
  // ProfileOptions::collectors names none.
  std::function<std::vector<std::unique_ptr<Collector>>(const ProfileOptions&)>
      collectors;
  // `page`, if not null, receives what a page shows of the trace.
  std::function<Report(const Trace&, PageDetails* page)> analyze;
  // The same of one rank of several, with what a report of all of them needs.
  std::function<RankDigest(const Trace&, PageDetails* page)> digest;
  // The report for the terminal.
  std::function<std::string(const Report&, const TextOptions&)> to_text;
  // In the order in which they are written. The smallest and most useful come
  // first, because the disk may be nearly full.
  std::vector<WindowFile> files;
  // What ends a program that a signal asks to end (signal_grace): Finish(), or,
  // if false, the Profile's destructor, so that whoever shows the reports may
  // do so before, as long as the grace lasts.
  bool finish_ends_program = true;
};

// The default analysis, its text, and the files that the options select;
// without collectors.
ProfileParts ProfileOutputs(const ProfileOptions& options);

}  // namespace stepscope
