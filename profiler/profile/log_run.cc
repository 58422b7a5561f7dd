#include "log_run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

namespace stepscope {
namespace {

namespace fs = std::filesystem;

// If rank 0's choice was published longer than this before our start, it
// belongs to an earlier job with the same launcher variables: the ranks of one
// job start within minutes.
constexpr int64_t kFreshSeconds = 300;

absl::Status FolderError(const std::string& path, int error_number) {
  const absl::Status reason = absl::ErrnoToStatus(error_number, "");
  return absl::Status(
      reason.code(),
      "cannot write to log_dir: " + path + ": " +
          std::error_code(error_number, std::generic_category()).message() +
          "; choose another log_dir (training goes on, and the report is still "
          "printed)");
}

absl::Status MakeAll(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return FolderError(path, error.value());
  return absl::OkStatus();
}

// Writes a file, because an existing folder may not be writable.
absl::Status TryToWrite(const std::string& folder) {
  const std::string path = folder + "/.try-" + std::to_string(getpid());
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) return FolderError(folder, errno);
  close(file);
  unlink(path.c_str());
  return absl::OkStatus();
}

std::string RunFolder(const std::string& log_dir, const std::string& run) {
  return log_dir + "/stepscope/" + run;
}

}  // namespace

LogRun::LogRun(std::string log_dir, const RunIdentity& identity)
    : log_dir_(std::move(log_dir)), identity_(identity) {}

absl::StatusOr<std::unique_ptr<LogRun>> LogRun::Make(
    const std::string& log_dir, const RunIdentity& identity) {
  std::unique_ptr<LogRun> log(new LogRun(log_dir, identity));
  if (absl::Status s = log->MakeFolders(); !s.ok()) return s;
  return log;
}

absl::Status LogRun::MakeFolders() {
  std::error_code ignored;
  made_log_dir_ = !fs::exists(log_dir_, ignored);
  const std::string folder = log_dir_ + "/stepscope";
  if (absl::Status s = MakeAll(folder); !s.ok()) return s;
  if (absl::Status s = TryToWrite(folder); !s.ok()) return s;
  if (identity_.rank > 0) return absl::OkStatus();  // rank 0 names the RUN
  if (absl::Status s = TakeFreeRun(); !s.ok()) return s;
  return identity_.world_size > 1 ? Publish() : absl::OkStatus();
}

// mkdir is atomic on every file system, so of several processes exactly one
// succeeds. Jobs that start in the same second get different names: the pid
// distinguishes processes of one host, and the number those of several hosts.
absl::Status LogRun::TakeFreeRun() {
  const std::string pid = std::to_string(getpid());
  for (int attempt = 0; attempt < 1000; ++attempt) {
    std::string run = RunName(identity_.name, identity_.start);
    if (attempt > 0) run += "_" + pid;
    if (attempt > 1) run += "_" + std::to_string(attempt);
    if (mkdir(RunFolder(log_dir_, run).c_str(), 0777) == 0) {
      run_ = run;
      return absl::OkStatus();
    }
    if (errno != EEXIST) return FolderError(RunFolder(log_dir_, run), errno);
  }
  return absl::AlreadyExistsError(
      "cannot find a free name beside " +
      RunFolder(log_dir_, RunName(identity_.name, identity_.start)) +
      "; choose another log_dir");
}

// The file is in the log directory, because that is the only place that all
// ranks are known to share. Its name is a hash, because the launcher's
// variables may contain any characters.
std::string LogRun::JobFile() const {
  return log_dir_ + "/stepscope/.job-" +
         std::to_string(std::hash<std::string>{}(identity_.job));
}

// Writes a complete file and renames it, so that another rank never reads half
// of it.
absl::Status LogRun::Publish() const {
  const std::string path = JobFile();
  const std::string whole = path + "." + std::to_string(getpid());
  std::ofstream(whole) << run_ << ' ' << identity_.start_s << '\n';
  if (std::rename(whole.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(whole.c_str());
    return FolderError(path, error);
  }
  return absl::OkStatus();
}

// Takes rank 0's choice if it belongs to this job and this rank has not written
// to that RUN yet.
bool LogRun::TryPublished() {
  std::ifstream file(JobFile());
  std::string run;
  int64_t start_s = 0;
  if (!(file >> run >> start_s)) return false;
  if (start_s < identity_.start_s - kFreshSeconds) return false;
  // The folder is shared, so a name from a file must not lead out of it.
  if (run.find('/') != std::string::npos) return false;
  const std::string mark =
      RunFolder(log_dir_, run) + "/.rank" + std::to_string(identity_.rank);
  // If this rank's mark exists, an earlier start of the same job has written
  // here, and its files must stay.
  const int taken =
      open(mark.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (taken < 0) return false;
  close(taken);
  run_ = run;
  return true;
}

// Polls, because the file system is all that the ranks share.
const std::string& LogRun::Run() {
  if (!run_.empty()) return run_;
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  while (!TryPublished()) {
    if (std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    if (!TakeFreeRun().ok()) {
      run_ = RunName(identity_.name, identity_.start);
      unique_ = std::to_string(getpid());
    }
    // Not an error, because the files are complete, just not beside those of
    // rank 0.
    disagreement_ = "rank " + std::to_string(identity_.rank) +
                    " found no folder of rank 0 in " + log_dir_ +
                    " and wrote to " + run_ +
                    " instead; give all ranks one shared log_dir";
    break;
  }
  return run_;
}

absl::StatusOr<LogPaths> LogRun::PathsOf(int32_t cycle) {
  const LogPaths paths =
      PathsFor(log_dir_, Run(), identity_.host, identity_.rank, cycle, unique_);
  for (const std::string& path :
       {paths.chrome_tb, paths.xspace, paths.chrome_kineto, paths.advice,
        identity_.world_size > 1 ? paths.digest : paths.report}) {
    if (absl::Status s = MakeAll(fs::path(path).parent_path()); !s.ok()) {
      return s;
    }
  }
  return paths;
}

absl::StatusOr<std::string> LogRun::StepTimesPath() {
  const std::string path =
      PathsFor(log_dir_, Run(), identity_.host, identity_.rank, 0, unique_)
          .step_times;
  if (absl::Status s = MakeAll(fs::path(path).parent_path()); !s.ok()) {
    return s;
  }
  return path;
}

std::string LogRun::DigestPathOf(int32_t rank, int32_t cycle) {
  return PathsFor(log_dir_, Run(), identity_.host, rank, cycle).digest;
}

std::string LogRun::AnnouncementFile(int32_t rank) const {
  return JobFile() + ".rank" + std::to_string(rank);
}

// The start time in the file distinguishes it from files of earlier jobs, as in
// TryPublished().
void LogRun::Announce(const std::string& text) {
  const std::string path = AnnouncementFile(identity_.rank);
  const std::string whole = path + "." + std::to_string(getpid());
  std::ofstream(whole) << identity_.start_s << ' ' << text << '\n';
  announced_ = std::rename(whole.c_str(), path.c_str()) == 0;
  if (!announced_) unlink(whole.c_str());
}

std::optional<std::string> LogRun::AnnouncementOf(int32_t rank) const {
  std::ifstream file(AnnouncementFile(rank));
  int64_t start_s = 0;
  std::string text;
  if (!(file >> start_s) || !std::getline(file, text)) return std::nullopt;
  if (start_s < identity_.start_s - kFreshSeconds) return std::nullopt;
  return text;
}

LogRun::~LogRun() {
  try {
    CleanUp();
  } catch (const std::exception&) {
    // Without memory for the paths, the files and empty folders are left
    // behind.
  }
}

// Removes the folders of a run that recorded nothing, so that viewers do not
// list them.
void LogRun::CleanUp() {
  if (announced_) unlink(AnnouncementFile(identity_.rank).c_str());
  if (run_.empty()) return;
  // rmdir removes only empty folders.
  if (rmdir(RunFolder(log_dir_, run_).c_str()) != 0) return;
  if (identity_.world_size > 1 && identity_.rank == 0) {
    unlink(JobFile().c_str());
  }
  if (rmdir((log_dir_ + "/stepscope").c_str()) == 0 && made_log_dir_) {
    rmdir(log_dir_.c_str());
  }
}

}  // namespace stepscope
