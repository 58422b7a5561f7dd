// RunOutput: writes the times of all steps of a run and prints status lines.
// Runs on the background thread.
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
  // If `log` is null, no lines are written. `who` precedes each message.
  RunOutput(std::shared_ptr<LogRun> log, std::string who,
            std::shared_ptr<Errors> errors);

  // Appends one line of JSON per step. After an error, which is reported once,
  // nothing more is written.
  void Write(const std::vector<StepLine>& lines) noexcept;

  // Chooses the stall that is recorded next.
  void Plan(const RunTimes& times, StallRecorder& stalls) noexcept;

  // Prints a line about the run so far on stderr.
  void SayStatus(const RunTimes& times) noexcept;

 private:
  absl::Status Append(const std::vector<StepLine>& lines);

  const std::shared_ptr<LogRun> log_;
  const std::string who_;
  const std::shared_ptr<Errors> errors_;
  bool failed_ = false;
};

}  // namespace stepscope
