// The text of a program for the simulator: lines into statements.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope::simulator {

struct Statement {
  std::string verb;
  std::vector<std::string> words = {};              // "pageable", "async"
  std::map<std::string, std::string> options = {};  // stream=7
  std::vector<Statement> body = {};
  bool has_body = false;
  int line = 0;

  bool Says(std::string_view word) const;
  // The option as a number (a duration in ns, a size in bytes, a plain number),
  // or `other`.
  double Option(const std::string& name, double other) const;
  // The option as it is written, or `other`.
  std::string Text(const std::string& name, const std::string& other) const;
  std::string Word(size_t index) const;  // "" if there are fewer
  double Number(size_t index) const;     // of words; 0 if there are fewer
};

// A program's statements in order. InvalidArgument names the line.
absl::StatusOr<std::vector<Statement>> ParseProgram(std::string_view text);

// "12us" -> 12000, "4KiB" -> 4096, "0.5" -> 0.5; NaN if it is no number.
double ParseNumber(std::string_view text);

// The program with some of its faults put right: a line that begins with "-2"
// is there while the second fault is, a line that begins with "+2" once it is
// put right. "-" and "+" alone mean the first. fixed[i]: the fault i + 1.
std::string WithFixes(std::string_view text, const std::vector<bool>& fixed);

// Puts numbers for $name and $(expression) in a text; + - * / and names.
absl::StatusOr<std::string> Substitute(
    std::string_view text, const std::map<std::string, double>& values);

}  // namespace stepscope::simulator
