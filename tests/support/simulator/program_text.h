// Parses the text of a simulator program into statements.
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
  // Returns the option as a number (a duration in ns, a size in bytes, or a
  // plain number), or `other`.
  double Option(const std::string& name, double other) const;
  // Returns the option's text, or `other`.
  std::string Text(const std::string& name, const std::string& other) const;
  std::string Word(size_t index) const;  // "" if there are fewer
  double Number(size_t index) const;     // of words; 0 if there are fewer
};

// Returns a program's statements in order. InvalidArgument names the line.
absl::StatusOr<std::vector<Statement>> ParseProgram(std::string_view text);

// Returns "12us" as 12000, "4KiB" as 4096, "0.5" as 0.5; NaN if it is not a
// number.
double ParseNumber(std::string_view text);

// Returns the program with some of its faults fixed. A line that starts with
// "-2" remains while the second fault is not fixed; one with "+2" remains once
// it is fixed. "-" and "+" alone mean the first fault. fixed[i] is for fault i
// + 1.
std::string WithFixes(std::string_view text, const std::vector<bool>& fixed);

// Replaces $name and $(expression) in a text with numbers. Expressions have + -
// * / and names.
absl::StatusOr<std::string> Substitute(
    std::string_view text, const std::map<std::string, double>& values);

}  // namespace stepscope::simulator
