// CommandWords: the words after a command, split into arguments and options.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "usage/command.h"

namespace stepscope {

// The path that "-" stands for.
inline constexpr std::string_view kStdin = "/dev/stdin";

struct CommandWords {
  std::vector<std::string> arguments;  // all but the options, in order
  // By long name. An option without a value is present with "".
  std::map<std::string, std::string, std::less<>> options;

  bool has(std::string_view name) const { return options.contains(name); }
  // Empty if the option was not given.
  std::string value(std::string_view name) const;
};

// Splits `words`, the first of which is the command. Values follow an option as
// "--format json" or "--format=json". "--" ends the options. --help and -h are
// known to every command. Errors: InvalidArgument, one line for the user, with
// the nearest known option if one was misspelled.
absl::StatusOr<CommandWords> ParseCommandWords(
    std::span<const std::string> words, std::span<const Option> known);

// Returns the index of the option's value in `choices`; 0 if the option was not
// given. Errors: InvalidArgument, with a list of the choices.
absl::StatusOr<size_t> ChoiceOf(const CommandWords& words,
                                std::string_view option,
                                std::span<const std::string_view> choices);

// Returns the option's value as a whole number of at least 0; `otherwise` if
// the option was not given. Errors: InvalidArgument.
absl::StatusOr<int32_t> NumberOf(const CommandWords& words,
                                 std::string_view option, int32_t otherwise);

// Returns the candidate that needs the fewest edits to become `word`; empty if
// even that one is too different.
std::string_view Nearest(std::string_view word,
                         std::span<const std::string_view> candidates);

// Returns "; did you mean 'NEAREST'?" or, if none is near, where to look.
std::string DidYouMean(std::string_view word,
                       std::span<const std::string_view> candidates);

}  // namespace stepscope
