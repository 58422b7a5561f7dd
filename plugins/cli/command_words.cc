#include "command_words.h"

#include <absl/status/status.h>

#include <algorithm>

#include "arguments.h"

namespace stepscope {
namespace {

const OptionName* Find(std::string_view name,
                       std::span<const OptionName> known) {
  static constexpr OptionName kHelp = {"--help", false, "-h"};
  for (const OptionName& option : known) {
    if (name == option.name || name == option.short_name) return &option;
  }
  return name == kHelp.name || name == kHelp.short_name ? &kHelp : nullptr;
}

absl::Status Unknown(const std::string& name,
                     std::span<const OptionName> known) {
  std::vector<std::string_view> names = {"--help"};
  for (const OptionName& option : known) names.push_back(option.name);
  const std::string_view nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      "unknown option '" + name + "'" +
      (nearest.empty() ? "; see stepscope --help"
                       : "; did you mean '" + std::string(nearest) + "'?"));
}

}  // namespace

std::string CommandWords::value(std::string_view name) const {
  const auto found = options.find(name);
  return found == options.end() ? "" : found->second;
}

absl::StatusOr<CommandWords> ParseCommandWords(
    std::span<const std::string> words, std::span<const OptionName> known) {
  CommandWords parsed;
  bool only_paths = false;
  for (size_t at = 1; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (only_paths || word == "-" || !word.starts_with("-")) {
      parsed.paths.push_back(word);
      continue;
    }
    if (word == "--") {
      only_paths = true;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const OptionName* option = Find(name, known);
    if (option == nullptr) return Unknown(name, known);
    std::string value;
    if (equals != std::string::npos) {
      if (!option->takes_value)
        return absl::InvalidArgumentError(name + " takes no value");
      value = word.substr(equals + 1);
    } else if (option->takes_value && at + 1 < words.size()) {
      value = words[++at];
    }
    if (option->takes_value && value.empty())
      return absl::InvalidArgumentError(name + " needs a value");
    parsed.options[std::string(option->name)] = value;
  }
  return parsed;
}

absl::StatusOr<size_t> ChoiceOf(std::string_view option,
                                const std::string& value,
                                std::span<const std::string_view> choices) {
  const auto found = std::ranges::find(choices, value);
  if (found != choices.end())
    return static_cast<size_t>(found - choices.begin());
  std::string list;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) list += i + 1 == choices.size() ? " or " : ", ";
    list += choices[i];
  }
  return absl::InvalidArgumentError(std::string(option) + " is " + list +
                                    ", not '" + value + "'");
}

}  // namespace stepscope
