#include "output.h"

#include <stepscope/export.h>
#include <stepscope/logdir.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "errors.h"

namespace stepscope {
namespace {

// Writes to standard output and flushes it, because otherwise a full disk would
// not be noticed until the process ends.
absl::Status WriteToStdout(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0) {
    return absl::OkStatus();
  }
  // After a short write errno may still be 0.
  return absl::UnavailableError(
      std::string("cannot write to standard output: ") +
      std::strerror(errno != 0 ? errno : EIO) +
      "; check the disk or the pipe and try again");
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
  if (IsStdout(path)) return WriteToStdout(text);
  return WriteText(text, path);
}

int WriteResult(const std::string& text, const std::string& path) {
  const absl::Status written = WriteOut(text, path);
  if (written.ok()) return 0;
  PrintError(written);
  return 1;
}

}  // namespace stepscope
