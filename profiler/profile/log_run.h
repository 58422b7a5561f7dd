// LogRun: the folders of one Profile in a log directory. Each start of a job is
// a RUN, which all its ranks share. No file is ever overwritten.
//
// The name of the RUN: rank 0 of a job, or a process without a launcher, uses
// <name>_<start time>, or the next free name after it. Rank 0 publishes its
// choice in LOGDIR/stepscope/.job-<hash of the launcher's variables>. The other
// ranks read it there when they have something to write. A rank that does not
// find the file (because the directory is not shared) uses its own name and
// start time and says so.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/logdir.h>
#include <stepscope/run_identity.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace stepscope {

class LogRun {
 public:
  // Creates the log directory and checks that it is writable. Returns the
  // errors of the file system (PermissionDenied, NotFound, ResourceExhausted,
  // ...), with advice.
  static absl::StatusOr<std::unique_ptr<LogRun>> Make(
      const std::string& log_dir, const RunIdentity& identity);

  // Removes the folders it created if they are still empty.
  ~LogRun();
  LogRun(const LogRun&) = delete;
  LogRun& operator=(const LogRun&) = delete;

  // Returns the name of the RUN. Must not be called on the training thread,
  // because it may wait for rank 0.
  const std::string& Run();
  // Why the ranks do not share a RUN; "" if they do. REQUIRES: Run() was
  // called.
  const std::string& disagreement() const { return disagreement_; }

  // Returns the paths of the files of one cycle, and creates their folders.
  absl::StatusOr<LogPaths> PathsOf(int32_t cycle);

  // Returns the path of the file with the times of all steps, and creates its
  // folder.
  absl::StatusOr<std::string> StepTimesPath();

  // Returns the path of `rank`'s digest if all ranks share the log directory.
  // May wait like Run().
  std::string DigestPathOf(int32_t rank, int32_t cycle);

  // Tells rank 0, through a file with `text`, that this rank records into the
  // log directory. The destructor removes the file. Ignores an error of
  // writing.
  void Announce(const std::string& text);
  // Returns what `rank` of this job has announced; nullopt if nothing.
  std::optional<std::string> AnnouncementOf(int32_t rank) const;

  const std::string& log_dir() const { return log_dir_; }

  // Sets how long Run() waits for rank 0. For tests.
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
  std::string unique_;  // appended to file names if Run() found no free folder
  std::string disagreement_;
};

}  // namespace stepscope
