#include "console.h"

#include <stepscope/printable.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace stepscope {

void Say(std::string_view text) noexcept {
  // One call per line, so that the lines of several ranks do not mix.
  const auto print = [](std::string_view line) {
    std::fprintf(stderr, "stepscope: %.*s\n", static_cast<int>(line.size()),
                 line.data());
  };
  try {
    print(Printable(text));
  } catch (...) {
    print(text);  // no memory; `text` is then one of our own
  }
}

bool ColorsOnStdout() {
  const char* const no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

int StdoutColumns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 40) {
    return 100;
  }
  return size.ws_col;
}

void PrintReport(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

void Errors::Add(const absl::Status& error) noexcept {
  {
    // Cheap under the lock: copying a Status only increments a reference count.
    const std::lock_guard lock(mutex_);
    if (first_.ok()) first_ = error;
  }
  try {
    Say(who_ + MessageOf(error));
  } catch (...) {
    Say("out of memory while reporting an error");
  }
}

void Errors::AddException(const char* what, const char* then) noexcept {
  try {
    std::string text = "unknown exception";
    try {
      throw;
    } catch (const std::exception& error) {
      text = error.what();
    } catch (...) {
    }
    Add(absl::InternalError(std::string(what) + ": " + text + then));
  } catch (...) {
    // There is no memory for a string. Neither of these needs one.
    Say("out of memory; an error of the profiler is not shown");
    const std::lock_guard lock(mutex_);
    if (first_.ok()) {
      first_ = absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
  }
}

absl::Status Errors::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

}  // namespace stepscope
