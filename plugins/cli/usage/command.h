// Command: the description of one of the program's commands. Usage texts,
// completion, the manual page and the parsing of options are all made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

struct CommandWords;

struct Option {
  std::string_view name;             // "--format"
  std::string_view short_name = "";  // "-o"
  std::string_view value = "";       // "FILE"; empty if it takes no value
  std::string_view help = "";        // for people, in any length
  // The allowed values, shown in place of `value`; empty: any value is allowed.
  std::span<const std::string_view> choices = {};

  bool takes_value() const { return !value.empty(); }
};

// The option that every command has.
inline constexpr Option kHelpOption = {
    .name = "--help", .short_name = "-h", .help = "print this text"};

// The kind of a command's arguments, for completion.
enum class Arguments : uint8_t {
  kNone,
  kPaths,
  kRules,              // IDs of rules
  kTraceThenSettings,  // a path, then the keys of what-if
  kCommands,           // names of commands
  kShells,             // those that have completion
};

// A row of a table in a usage text: a word and its meaning.
struct Term {
  std::string term;
  std::string meaning;
};

struct Command {
  std::string_view name;
  std::string_view arguments;  // "PATH..."; may be empty
  std::string_view summary;    // a few words, for the list of commands
  // Paragraphs, separated by newlines.
  std::string_view description;
  // A table between the description and the options; `terms` may be null.
  std::string_view terms_title = "";
  std::vector<Term> (*terms)() = nullptr;
  std::span<const Option> options = {};
  std::string_view exit_status = "";  // "0 written, 1 ..., 2 wrong usage."
  Arguments completes = Arguments::kPaths;
  // Returns the exit status. Null for a command of the Python package.
  int (*run)(const CommandWords& words) = nullptr;
};

}  // namespace stepscope
