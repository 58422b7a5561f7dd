// CommandWords: the words behind a command, taken apart into paths and options.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

struct OptionName {
  std::string_view name;  // "--format"
  bool takes_value = true;
  std::string_view short_name = "";  // "-o"
};

struct CommandWords {
  std::vector<std::string> paths;
  // By their long names; an option without a value is there with "".
  std::map<std::string, std::string, std::less<>> options;

  bool has(std::string_view name) const { return options.contains(name); }
  // Empty where the option was not given.
  std::string value(std::string_view name) const;
};

// `words` begins with the command. "--" ends the options; --help and -h are
// known everywhere. Errors: InvalidArgument, one line for the user.
absl::StatusOr<CommandWords> ParseCommandWords(
    std::span<const std::string> words, std::span<const OptionName> known);

// The index of `value` in `choices`. Errors: InvalidArgument, which lists them.
absl::StatusOr<size_t> ChoiceOf(std::string_view option,
                                const std::string& value,
                                std::span<const std::string_view> choices);

}  // namespace stepscope
