// What a Profile says to the person at the terminal.
#pragma once

#include <absl/status/status.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace stepscope {

// One whole line on stderr, "stepscope: <text>".
void Say(std::string_view text) noexcept;

// True if stdout is a terminal that shows colours and NO_COLOR is not set
// (https://no-color.org).
bool ColorsOnStdout();
// Columns of the terminal behind stdout; 100 if it is none.
int StdoutColumns();
// All of `text` on stdout in one piece.
void PrintReport(const std::string& text);

std::string MessageOf(const absl::Status& status);

// Errors of one Profile: says each, keeps the first. Any thread.
class Errors {
 public:
  // `who` is put before each message where it is not empty ("rank 3: ").
  explicit Errors(std::string who) : who_(std::move(who)) {}
  void Add(const absl::Status& error) noexcept;
  absl::Status first() const;

 private:
  const std::string who_;
  mutable std::mutex mutex_;
  absl::Status first_;
};

}  // namespace stepscope
