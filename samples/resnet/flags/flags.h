// Flag: one line of a table that is both the parser and the help text.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace resnet {

struct Flag {
  std::string name;  // with its dashes; a title of the help text if it has none
  std::string value;  // what the help calls its value; empty: it takes none
  std::string help;
  // Takes the value, or "" of a flag without one. Returns what would have been
  // right if it is not: "a whole number of at least 1".
  std::function<std::string(std::string_view)> set;
};

// Values of the usual kinds.
std::function<std::string(std::string_view)> SetTo(bool* target, bool value);
std::function<std::string(std::string_view)> Bit(bool* target);  // 0 or 1
std::function<std::string(std::string_view)> Text(std::string* target);
std::function<std::string(std::string_view)> AtLeast(int low, int* target);
std::function<std::string(std::string_view)> Positive(double* target);

// Hands each argument to its flag. Errors: InvalidArgument.
absl::Status ParseFlags(std::span<const Flag> flags,
                        std::span<const char* const> args);

// One paragraph per flag, in the order of the table.
std::string DescribeFlags(std::span<const Flag> flags);

}  // namespace resnet
