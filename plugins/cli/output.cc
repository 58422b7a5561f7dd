#include "output.h"

#include <stepscope/logdir.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "errors.h"

namespace stepscope {
namespace {

absl::Status WriteError(const std::string& what, int error) {
  const std::string message =
      "cannot write " + what + ": " + std::strerror(error);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(message +
                                       "; choose another file with --output");
  }
  if (error == ENOENT || error == ENOTDIR)
    return absl::NotFoundError(message + "; create the folder first");
  if (error == EISDIR) {
    return absl::InvalidArgumentError("cannot write " + what +
                                      ": it is a folder; name a file in it");
  }
  if (error == ENOSPC || error == EDQUOT)
    return absl::ResourceExhaustedError(message + "; free some space");
  return absl::UnavailableError(message + "; check the disk and try again");
}

// Writes and closes the file. Returns the first error, or 0.
int WriteAndClose(std::FILE* file, const std::string& text) {
  errno = 0;
  // Flush here; otherwise a full disk would not be noticed until the process
  // ends.
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
      std::fflush(file) == 0;
  // After a short write errno may still be 0.
  int error = written ? 0 : (errno != 0 ? errno : EIO);
  if (file != stdout && std::fclose(file) != 0 && error == 0) error = errno;
  return error;
}

bool IsStdout(const std::string& path) { return path.empty() || path == "-"; }

}  // namespace

int WidthFor(const std::string& path, int otherwise) {
  const int columns = IsStdout(path) ? TerminalColumns(STDOUT_FILENO) : 0;
  return columns > 0 ? columns : otherwise;
}

absl::Status MayReplace(const std::string& path,
                        std::span<const std::string> inputs) {
  constexpr char kRefused[] =
      " is read and cannot be written to; give the result another name";
  std::error_code error;
  // Nothing is lost in a device or a pipe.
  if (IsStdout(path) || !std::filesystem::is_regular_file(path, error)) {
    return absl::OkStatus();
  }
  // By device and inode, so that links and other spellings of a path count.
  const auto is_it = [&](const std::string& input) {
    return std::filesystem::equivalent(input, path, error);
  };
  for (const std::string& input : inputs) {
    if (is_it(input)) return absl::InvalidArgumentError(path + kRefused);
    if (!std::filesystem::is_directory(input, error)) continue;
    const absl::StatusOr<ResolvedRun> run = ResolvePath(input);
    if (run.ok() && std::ranges::any_of(run->trace_files, is_it)) {
      return absl::InvalidArgumentError(path + kRefused);
    }
  }
  return absl::OkStatus();
}

absl::Status WriteOut(const std::string& text, const std::string& path) {
  if (IsStdout(path)) {
    const int error = WriteAndClose(stdout, text);
    return error == 0 ? absl::OkStatus()
                      : WriteError("to standard output", error);
  }
  // A pipe or a device is written to directly. It must not be replaced.
  struct stat about = {};
  if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    std::FILE* device = std::fopen(path.c_str(), "wb");
    if (device == nullptr) return WriteError(path, errno);
    const int error = WriteAndClose(device, text);
    return error == 0 ? absl::OkStatus() : WriteError(path, error);
  }
  // Write a temporary file beside the target and rename it, so that a failure
  // leaves no half-written file.
  const std::string temporary =
      path + ".tmp" + std::to_string(static_cast<long>(getpid()));
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return WriteError(path, errno);
  int error = WriteAndClose(file, text);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0)
    error = errno;
  if (error == 0) return absl::OkStatus();
  std::remove(temporary.c_str());
  return WriteError(path, error);
}

int WriteResult(const std::string& text, const std::string& path) {
  const absl::Status written = WriteOut(text, path);
  if (written.ok()) return 0;
  PrintError(written);
  return 1;
}

}  // namespace stepscope
