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

// What "-" stands for as a path.
inline constexpr std::string_view kStdin = "/dev/stdin";

struct CommandWords {
  std::vector<std::string> arguments;  // all but the options, in order
  // By their long names; an option without a value is there with "".
  std::map<std::string, std::string, std::less<>> options;

  bool has(std::string_view name) const { return options.contains(name); }
  // Empty where the option was not given.
  std::string value(std::string_view name) const;
};

// Splits `words`, of which the first is the command. Values follow an option as
// "--format json" or "--format=json"; "--" ends the options; --help and -h are
// known to every command. Errors: InvalidArgument, one line for the user, with
// the nearest known option where one was misspelled.
absl::StatusOr<CommandWords> ParseCommandWords(
    std::span<const std::string> words, std::span<const Option> known);

// The index of the option's value in `choices`; 0 where the option was not
// given. Errors: InvalidArgument, which lists the choices.
absl::StatusOr<size_t> ChoiceOf(const CommandWords& words,
                                std::string_view option,
                                std::span<const std::string_view> choices);

// The option's value as a whole number of at least 0; `otherwise` where the
// option was not given. Errors: InvalidArgument.
absl::StatusOr<int32_t> NumberOf(const CommandWords& words,
                                 std::string_view option, int32_t otherwise);

// The candidate that takes the fewest edits to become `word`; empty if even
// that one is too different to be meant.
std::string_view Nearest(std::string_view word,
                         std::span<const std::string_view> candidates);

// "; did you mean 'NEAREST'?", or where to look if none is near.
std::string DidYouMean(std::string_view word,
                       std::span<const std::string_view> candidates);

}  // namespace stepscope
