// RunOutput: writes the times of all steps of a run, and says how it goes. Runs
// on the background thread.
#pragma once

#include <stepscope/run_times.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "console.h"
#include "log_run.h"
#include "run_watch.h"
#include "stall_recorder.h"

namespace stepscope {

class RunOutput {
 public:
  // `log` may be null: then no lines are written. `who` precedes each message.
  RunOutput(std::shared_ptr<LogRun> log, std::string who,
            std::shared_ptr<Errors> errors);

  // Appends one line of JSON per step. An error is said once, and ends the
  // file.
  void Write(const std::vector<StepLine>& lines) noexcept;

  // Chooses the stall to be recorded next.
  void Plan(const RunTimes& times, StallRecorder& stalls) noexcept;

  // A line on stderr about the run so far.
  void SayStatus(const RunTimes& times) noexcept;

 private:
  absl::Status Append(const std::vector<StepLine>& lines);

  const std::shared_ptr<LogRun> log_;
  const std::string who_;
  const std::shared_ptr<Errors> errors_;
  bool failed_ = false;
};

}  // namespace stepscope
