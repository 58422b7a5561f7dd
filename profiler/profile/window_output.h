// WindowOutput: turns a closed window into a Trace, a Report, a printed report
// and files. Runs on the background thread.
#pragma once

#include <stepscope/profile_parts.h>
#include <stepscope/run_identity.h>
#include <stepscope/run_times.h>
#include <stepscope/session.h>
#include <stepscope/trace.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "console.h"
#include "job_report.h"
#include "log_run.h"
#include "stall_recorder.h"

namespace stepscope {

class WindowOutput {
 public:
  struct Options {
    std::string name;
    RunIdentity identity;
    bool record_shapes = false;
    bool profile_memory = false;
    bool with_stack = false;
    bool print_report = true;
    ProfileParts parts;
    std::function<void(const Trace&, const Report&)> on_report;
    std::function<void(const Report&)> on_job_report;
    std::function<void(const WholeRun&)> on_run_end;
    std::shared_ptr<JobReport> job;  // null: each rank reports alone
    bool writes_trace = false;       // LogPaths::chrome_kineto will be there
  };

  // `log` may be null: then no files are written.
  WindowOutput(Options options, std::shared_ptr<LogRun> log,
               std::shared_ptr<Errors> errors);

  // Builds, analyses, prints and writes; `times` is the run so far. Adds every
  // failure to the Errors; a file that fails does not stop the others, and
  // neither does on_report.
  void Take(ClosedWindow& window, const RunTimes& times) noexcept;

  // Analyses the window around a stall, and tells `stalls` what it shows.
  void TakeStall(ClosedWindow& window, StallRecorder& stalls) noexcept;

  // The run has ended: prints what all its steps show, and writes the files
  // that come from the last report again. Does nothing if that is nothing.
  // `stalls` may be null.
  void EndRun(const RunTimes& times, const StallRecorder* stalls) noexcept;

 private:
  void TakeOrThrow(ClosedWindow& window, const RunTimes& times);
  void EndRunOrThrow(const RunTimes& times, const StallRecorder* stalls);
  TextOptions Layout() const;
  // The report of all ranks; null if there is none.
  const Report* job() const { return job_report_ ? &*job_report_ : nullptr; }
  void CallBack(const Trace& trace) noexcept;
  void ShareWindow(RankDigest digest);
  // What is printed: the report of all ranks, if there is one.
  void Print();
  RunInfo MakeRunInfo();
  // `again`: only those that need no trace.
  void WriteFiles(const Trace& trace, bool again);

  const Options options_;
  const std::shared_ptr<LogRun> log_;
  const std::shared_ptr<Errors> errors_;
  Report report_;  // of the last window
  std::optional<Report> job_report_;
  PageDetails page_;
  LogPaths paths_;
};

}  // namespace stepscope
