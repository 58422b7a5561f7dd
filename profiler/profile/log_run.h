// LogRun: the folders of one Profile in a log directory. Each start of a job is
// a RUN, which its ranks share; no file is ever overwritten.
//
// The name of the RUN: a process without a launcher, and rank 0 of a job, use
// <name>_<start time>, or the next free name after it. Rank 0 publishes its
// choice in LOGDIR/stepscope/.job-<hash of the launcher's variables>; the other
// ranks read it there when they have something to write. A rank that does not
// find the file (the directory is not shared) uses its own name and start time
// and says so.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/logdir.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "run_identity.h"

namespace stepscope {

class LogRun {
 public:
  // Creates the log directory and checks that it is writable. Errors: those of
  // the file system (PermissionDenied, NotFound, ResourceExhausted, ...), with
  // what to do.
  static absl::StatusOr<std::unique_ptr<LogRun>> Make(
      const std::string& log_dir, const RunIdentity& identity);

  // Removes the folders it created if they are still empty.
  ~LogRun();
  LogRun(const LogRun&) = delete;
  LogRun& operator=(const LogRun&) = delete;

  // The name of the RUN. May wait for rank 0, so the training thread must not
  // call it.
  const std::string& Run();
  // Why the ranks do not share a RUN; "" if they do. REQUIRES: Run() was
  // called.
  const std::string& disagreement() const { return disagreement_; }

  // The paths of the files of one cycle, whose folders it creates.
  absl::StatusOr<LogPaths> PathsOf(int32_t cycle);

  // The file for the times of all steps, whose folder it creates.
  absl::StatusOr<std::string> StepTimesPath();

  // The file of `rank`'s digest, where the ranks share the log directory. May
  // wait like Run().
  std::string DigestPathOf(int32_t rank, int32_t cycle);

  // Leaves `text` for rank 0 until this object goes: this rank records into the
  // log directory. Nothing happens where it cannot be written.
  void Announce(const std::string& text);
  // What `rank` of this job has announced; nullopt if nothing.
  std::optional<std::string> AnnouncementOf(int32_t rank) const;

  const std::string& log_dir() const { return log_dir_; }

  // How long Run() waits for rank 0; for tests.
  void set_patience(std::chrono::milliseconds patience) {
    patience_ = patience;
  }

 private:
  LogRun(std::string log_dir, const RunIdentity& identity);
  void CleanUp();
  absl::Status MakeFolders();
  absl::Status TakeFreeRun();
  absl::Status Publish() const;
  bool TryPublished();
  std::string JobFile() const;
  std::string AnnouncementFile(int32_t rank) const;

  const std::string log_dir_;
  const RunIdentity identity_;
  std::chrono::milliseconds patience_ = std::chrono::seconds(5);
  bool made_log_dir_ = false;
  bool announced_ = false;
  std::string run_;     // "" until chosen
  std::string unique_;  // appended to names if this rank was here before
  std::string disagreement_;
};

}  // namespace stepscope
