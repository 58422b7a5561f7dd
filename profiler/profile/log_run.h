// LogRun: the place of one Profile in a log directory (formats: one RUN per
// start of a job, shared by its ranks; nothing is ever overwritten).
//
// Who names the RUN: a process without a launcher, and rank 0 of a job, take
// their start time, or the next free name after it. Rank 0 publishes its choice
// in LOGDIR/stepscope/.job-<hash of the launcher's variables>, where the other
// ranks find it when they have something to write. A rank that finds nothing
// (no shared directory) takes its own start time and says so.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/logdir.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "run_identity.h"

namespace stepscope {

class LogRun {
 public:
  // Makes the folders it can make now and checks that it can write there.
  // Errors: PermissionDenied, NotFound, ResourceExhausted and the like, with
  // what to do.
  static absl::StatusOr<std::unique_ptr<LogRun>> Make(
      const std::string& log_dir, const RunIdentity& identity);

  // Removes the folders it made if nothing was written into them.
  ~LogRun();
  LogRun(const LogRun&) = delete;
  LogRun& operator=(const LogRun&) = delete;

  // RUN. May wait for rank 0's choice, so not for the training thread.
  const std::string& Run();
  // "" or why the ranks do not share a RUN. Call after Run().
  const std::string& disagreement() const { return disagreement_; }

  // The files of one cycle; their folders exist afterwards.
  absl::StatusOr<LogPaths> PathsOf(int32_t cycle);

  const std::string& log_dir() const { return log_dir_; }

  // How long Run() waits for rank 0. Tests shorten it.
  void set_patience(std::chrono::milliseconds patience) {
    patience_ = patience;
  }

 private:
  LogRun(std::string log_dir, const RunIdentity& identity);
  absl::Status MakeFolders();
  absl::Status TakeFreeRun();
  absl::Status Publish() const;
  bool TryPublished();
  std::string JobFile() const;

  const std::string log_dir_;
  const RunIdentity identity_;
  std::chrono::milliseconds patience_ = std::chrono::seconds(5);
  bool made_log_dir_ = false;
  std::string run_;     // "" until chosen
  std::string unique_;  // appended to names if this rank was here before
  std::string disagreement_;
};

}  // namespace stepscope
