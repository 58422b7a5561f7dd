// Everything that a Profile prints.
#pragma once

#include <absl/status/status.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace stepscope {

// Prints `text` as one whole line on stderr, "stepscope: <text>".
void Say(std::string_view text) noexcept;

// True if stdout is a terminal with colours and NO_COLOR is not set
// (https://no-color.org).
bool ColorsOnStdout();
// The width of the terminal on stdout in columns; 100 if stdout is not a
// terminal.
int StdoutColumns();
// Prints `text` on stdout and flushes it.
void PrintReport(const std::string& text);

std::string MessageOf(const absl::Status& status);

// The errors of one Profile. Prints each error and keeps the first. Any thread
// may use it.
class Errors {
 public:
  // `who` precedes each message: "rank 3: ", or "".
  explicit Errors(std::string who) : who_(std::move(who)) {}
  void Add(const absl::Status& error) noexcept;
  // Adds an Internal error: `what`, the text of the exception that is being
  // handled, and `then`. Safe if memory has run out: parts of the text that
  // cannot be built are left out. REQUIRES: called in a catch block.
  void AddException(const char* what, const char* then = "") noexcept;
  // Runs `call`, and passes an exception to AddException().
  template <typename Call>
  void Guard(const char* what, Call call, const char* then = "") noexcept {
    try {
      call();
    } catch (...) {
      AddException(what, then);
    }
  }
  absl::Status first() const;

 private:
  const std::string who_;
  mutable std::mutex mutex_;
  absl::Status first_;
};

}  // namespace stepscope
