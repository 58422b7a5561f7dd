// Flag: one line of a table that is both the parser and the help text.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace resnet {

struct Flag {
  std::string name;   // with its dashes; without them: a title in the help
  std::string value;  // the name of its value in the help; empty: no value
  std::string help;
  // Called with the value, or "" for a flag without one. Returns "" if the
  // value is valid, else what it must be: "a whole number of at least 1".
  std::function<std::string(std::string_view)> set;
};

// Setters for the usual kinds of values.
std::function<std::string(std::string_view)> SetTo(bool* target, bool value);
std::function<std::string(std::string_view)> Bit(bool* target);  // 0 or 1
std::function<std::string(std::string_view)> Text(std::string* target);
std::function<std::string(std::string_view)> AtLeast(int low, int* target);
std::function<std::string(std::string_view)> Positive(double* target);

// Passes each argument to its flag. Errors: InvalidArgument.
absl::Status ParseFlags(std::span<const Flag> flags,
                        std::span<const char* const> args);

// Returns one paragraph per flag, in the order of the table.
std::string DescribeFlags(std::span<const Flag> flags);

}  // namespace resnet
