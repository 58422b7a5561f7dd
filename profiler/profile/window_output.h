// WindowOutput: turns a closed window into a Trace and a Report, prints the
// report and writes the files. Runs on the background thread.
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
    bool writes_trace = false;       // LogPaths::chrome_kineto will be written
  };

  // If `log` is null, no files are written.
  WindowOutput(Options options, std::shared_ptr<LogRun> log,
               std::shared_ptr<Errors> errors);

  // Builds the Trace, analyses it, prints the report and writes the files.
  // `times` is the run so far. Every failure is added to the Errors. A file
  // that fails does not stop the others, and neither does on_report.
  void Take(ClosedWindow& window, const RunTimes& times) noexcept;

  // Analyses the window around a stall, and gives the result to `stalls`.
  void TakeStall(ClosedWindow& window, StallRecorder& stalls) noexcept;

  // The run has ended: calls on_run_end, prints what the times of all steps
  // show, and writes again the files that need only the last report. Prints and
  // writes nothing if the times show nothing. `stalls` may be null.
  void EndRun(const RunTimes& times, const StallRecorder* stalls) noexcept;

 private:
  void TakeOrThrow(ClosedWindow& window, const RunTimes& times);
  void EndRunOrThrow(const RunTimes& times, const StallRecorder* stalls);
  TextOptions Layout() const;
  // The report of all ranks; null if there is none.
  const Report* job() const { return job_report_ ? &*job_report_ : nullptr; }
  void CallBack(const Trace& trace) noexcept;
  void ShareWindow(RankDigest digest);
  // Prints the report of all ranks if there is one, else this rank's report.
  void Print();
  RunInfo MakeRunInfo();
  WindowResult Result(const Trace& trace) const;
  // `again`: writes only the files that need no trace.
  void WriteFiles(const Trace& trace, bool again);

  const Options options_;
  const std::shared_ptr<LogRun> log_;
  const std::string log_dir_;  // "" if there is none
  const std::shared_ptr<Errors> errors_;
  Report report_;  // of the last window
  std::optional<Report> job_report_;
  PageDetails page_;
  LogPaths paths_;
};

}  // namespace stepscope
