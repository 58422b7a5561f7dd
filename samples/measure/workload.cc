#include "workload.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "child.h"

namespace measure {
namespace {

namespace fs = std::filesystem;

// A file that is gone when this is.
class ScratchFile {
 public:
  ScratchFile() {
    std::error_code code;
    fs::path folder = fs::temp_directory_path(code);
    if (code) folder = "/tmp";
    path_ = (folder / "stepscope_times_XXXXXX").string();
    const int file = ::mkstemp(path_.data());
    if (file >= 0) ::close(file);
    made_ = file >= 0;
  }
  ~ScratchFile() {
    if (made_) ::unlink(path_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

// The advice that lies below `folder`; empty if there is none, the first by
// name if there are several.
std::string FindAdvice(const std::string& folder) {
  std::string found;
  std::error_code code;
  for (fs::recursive_directory_iterator at(folder, code), end;
       !code && at != end; at.increment(code)) {
    const fs::path& path = at->path();
    if (path.filename() != "rank0.json") continue;
    if (path.parent_path().filename() != "advice") continue;
    if (found.empty() || path.string() < found) found = path.string();
  }
  return found;
}

}  // namespace

absl::StatusOr<Workload> Workload::Find(std::string program, Settings always) {
  std::error_code code;
  if (program.empty()) {
    const fs::path self = fs::read_symlink("/proc/self/exe", code);
    program = (self.parent_path() / "resnet").string();
  }
  if (::access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        "no program " + program +
        " to measure: build the target resnet, or name one with --resnet");
  }
  return Workload(std::move(program), std::move(always));
}

absl::StatusOr<RunTimes> Workload::Time(const Settings& settings, Length length,
                                        const std::string& folder) const {
  ScratchFile times;
  if (!times.made()) {
    return absl::UnavailableError("cannot make " + times.path() + ": " +
                                  std::strerror(errno));
  }
  Settings all = always_.With(settings);
  all.Set("--no-profile");
  all.Set("--log-dir", folder);
  all.Set("--steps", std::to_string(length.steps));
  all.Set("--warm-steps", std::to_string(length.warm_steps));
  all.Set("--json", times.path());
  const Command command{program_, all.Arguments()};
  if (absl::Status s = RunChild(command); !s.ok()) return s;
  absl::StatusOr<std::string> json = ReadFile(times.path());
  if (!json.ok()) return json.status();
  return ParseRunTimes(*json, "the times of " + command.Text());
}

absl::StatusOr<Advice> Workload::Profile(const Settings& settings,
                                         const std::string& folder,
                                         Window window) const {
  std::error_code code;
  fs::remove_all(folder, code);
  Settings all = always_.With(settings);
  all.Set("--log-dir", folder);
  all.Set("--wait", std::to_string(window.wait));
  all.Set("--warmup", std::to_string(window.warmup));
  all.Set("--active", std::to_string(window.active));
  all.Set("--repeat", "1");
  const Command command{program_, all.Arguments()};
  if (absl::Status s = RunChild(command); !s.ok()) return s;
  const std::string path = FindAdvice(folder);
  if (path.empty()) {
    return absl::NotFoundError(command.Text() + "\nleft no advice/rank0.json");
  }
  absl::StatusOr<std::string> json = ReadFile(path);
  if (!json.ok()) return json.status();
  return ParseAdvice(*json, path);
}

}  // namespace measure
