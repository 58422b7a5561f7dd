#include "command_words.h"

#include <absl/status/status.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <system_error>

namespace stepscope {
namespace {

const Option* Find(std::string_view name, std::span<const Option> known) {
  const auto is_called = [&](const Option& option) {
    return name == option.name ||
           (!option.short_name.empty() && name == option.short_name);
  };
  const auto found = std::ranges::find_if(known, is_called);
  if (found != known.end()) return &*found;
  return is_called(kHelpOption) ? &kHelpOption : nullptr;
}

absl::Status Unknown(const std::string& name, std::span<const Option> known) {
  // --help is not in the tables of options, because every command has it.
  std::vector<std::string_view> names = {"--help"};
  for (const Option& option : known) names.push_back(option.name);
  return absl::InvalidArgumentError("unknown option '" + name + "'" +
                                    DidYouMean(name, names));
}

// Returns the number of edits that turn one word into the other (Levenshtein),
// using one row of the table.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string CommandWords::value(std::string_view name) const {
  const auto found = options.find(name);
  return found == options.end() ? "" : found->second;
}

absl::StatusOr<CommandWords> ParseCommandWords(
    std::span<const std::string> words, std::span<const Option> known) {
  CommandWords parsed;
  bool options_ended = false;
  for (size_t at = 1; at < words.size(); ++at) {
    const std::string& word = words[at];
    // A lone "-" is a path: standard input.
    if (options_ended || word == "-" || !word.starts_with("-")) {
      parsed.arguments.push_back(word);
      continue;
    }
    // Everything after "--" is a path, even if it starts with "-".
    if (word == "--") {
      options_ended = true;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const Option* option = Find(name, known);
    if (option == nullptr) return Unknown(name, known);
    std::string value;
    if (equals != std::string::npos) {
      if (!option->takes_value())
        return absl::InvalidArgumentError(name + " takes no value");
      value = word.substr(equals + 1);
    } else if (option->takes_value() && at + 1 < words.size()) {
      value = words[++at];
    }
    if (option->takes_value() && value.empty())
      return absl::InvalidArgumentError(name + " needs a value");
    parsed.options[std::string(option->name)] = value;
  }
  return parsed;
}

absl::StatusOr<size_t> ChoiceOf(const CommandWords& words,
                                std::string_view option,
                                std::span<const std::string_view> choices) {
  if (!words.has(option)) return 0;
  const std::string value = words.value(option);
  const auto found = std::ranges::find(choices, value);
  if (found != choices.end())
    return static_cast<size_t>(found - choices.begin());
  std::string list;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) list += i + 1 == choices.size() ? " or " : ", ";
    list += choices[i];
  }
  return absl::InvalidArgumentError(std::string(option) + " must be " + list +
                                    ", not '" + value + "'");
}

absl::StatusOr<int32_t> NumberOf(const CommandWords& words,
                                 std::string_view option, int32_t otherwise) {
  if (!words.has(option)) return otherwise;
  const std::string text = words.value(option);
  const char* end = text.data() + text.size();
  int32_t number = 0;
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec == std::errc() && result.ptr == end && number >= 0)
    return number;
  const bool too_large =
      result.ec == std::errc::result_out_of_range && !text.starts_with('-');
  return absl::InvalidArgumentError(
      std::string(option) + " must be " +
      (too_large
           ? "at most " + std::to_string(std::numeric_limits<int32_t>::max())
           : "a whole number of at least 0") +
      ", not '" + text + "'");
}

std::string_view Nearest(std::string_view word,
                         std::span<const std::string_view> candidates) {
  std::string_view nearest;
  // Up to a third of the word may be wrong. Beyond that a guess would be noise.
  size_t least = std::max<size_t>(word.size() / 3, 1) + 1;
  for (std::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string DidYouMean(std::string_view word,
                       std::span<const std::string_view> candidates) {
  const std::string_view nearest = Nearest(word, candidates);
  return nearest.empty()
             ? "; stepscope --help lists the commands, stepscope COMMAND "
               "--help the options of one"
             : "; did you mean '" + std::string(nearest) + "'?";
}

}  // namespace stepscope
