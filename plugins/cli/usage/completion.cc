#include "usage/completion.h"

#include <span>

namespace stepscope {
namespace {

// Single quotes work for all three shells, because no text here contains a
// backslash, which fish would interpret.
std::string ShellQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

template <typename List>
std::string Spaced(const List& list, std::string_view suffix = "") {
  std::string text;
  for (const auto& word : list) {
    (text += text.empty() ? "" : " ") += word;
    text += suffix;
  }
  return text;
}

std::vector<std::string_view> NamesOf(Commands commands) {
  std::vector<std::string_view> names;
  for (const Command* command : commands) names.push_back(command->name);
  return names;
}

// Returns the possible arguments of a command, except paths.
std::string ArgumentWords(const Command& command, Commands commands,
                          const CompletedWords& words) {
  switch (command.completes) {
    case Arguments::kRules:
      return Spaced(words.rules);
    case Arguments::kTraceThenSettings:
      return Spaced(words.settings, "=");
    case Arguments::kCommands:
      return Spaced(NamesOf(commands));
    case Arguments::kShells:
      return Spaced(std::span(kShells));
    case Arguments::kNone:
    case Arguments::kPaths:
      break;
  }
  return "";
}

bool TakesPaths(const Command& command) {
  return command.completes == Arguments::kPaths ||
         command.completes == Arguments::kTraceThenSettings;
}

// True if the value of the option is a file or a folder.
bool IsPath(const Option& option) {
  return option.value == "FILE" || option.value == "PATH" ||
         option.value == "DIR";
}

// Returns "--format|-f" as a pattern for bash's `case`.
std::string Spellings(const Option& option) {
  std::string text(option.name);
  if (!option.short_name.empty()) text += "|" + std::string(option.short_name);
  return text;
}

std::string BashScript(Commands commands, const CompletedWords& words) {
  std::string text = R"(# Completion of stepscope in bash.
_stepscope() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} words='' files=''
  COMPREPLY=()
  # bash takes "=" for a word of its own: --format=json is three.
  if [[ $word == '=' ]]; then
    word=''
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if (( COMP_CWORD == 1 )); then
    words=)" + ShellQuoted(Spaced(NamesOf(commands)) + " --help --version") +
                     R"(
  else
    case $command in
)";
  for (const Command* command : commands) {
    text += "    " + std::string(command->name) + ")\n      case $before in\n";
    std::vector<std::string_view> names;
    for (const Option& option : command->options) {
      names.push_back(option.name);
      if (!option.takes_value()) continue;
      text += "      " + Spellings(option) + ")";
      if (!option.choices.empty())
        text += " words=" + ShellQuoted(Spaced(option.choices));
      if (IsPath(option)) text += " files=1";
      text += " ;;\n";
    }
    // The last branch of the `case`: a word that is not the value of an option.
    names.push_back(kHelpOption.name);
    text += "      *)\n        if [[ $word == -* ]]; then\n          words=" +
            ShellQuoted(Spaced(names)) + "\n        else\n          words=" +
            ShellQuoted(ArgumentWords(*command, commands, words)) +
            (TakesPaths(*command) ? " files=1" : "") +
            "\n        fi ;;\n      esac ;;\n";
  }
  return text + R"(    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word"
                           [[ -n $files ]] && compgen -f -- "$word")
  # A setting waits for its value.
  [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -o filenames -F _stepscope stepscope
)";
}

// Escapes the text of an option for zsh's _arguments, where brackets and colons
// would end it.
std::string ZshText(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') plain += '\\';
    plain += c;
  }
  return plain;
}

std::string ZshOption(const Option& option) {
  std::string rest;
  if (option.takes_value()) {
    rest = ":" + std::string(option.value) + ":";
    if (!option.choices.empty()) rest += "(" + Spaced(option.choices) + ")";
    if (IsPath(option)) rest += "_files";
  }
  const std::string help = "[" + ZshText(option.help) + "]";
  std::string text =
      " \\\n        " +
      ShellQuoted(std::string(option.name) + (option.takes_value() ? "=" : "") +
                  help + rest);
  if (!option.short_name.empty()) {
    text += " \\\n        " +
            ShellQuoted(std::string(option.short_name) + help + rest);
  }
  return text;
}

std::string ZshScript(Commands commands, const CompletedWords& words) {
  std::string text = R"(#compdef stepscope
# Completion of stepscope in zsh.
_stepscope() {
  local -a commands
  commands=(
)";
  for (const Command* command : commands) {
    text += "    " +
            ShellQuoted(std::string(command->name) + ":" +
                        ZshText(command->summary)) +
            "\n";
  }
  text += R"(  )
  if (( CURRENT == 2 )); then
    _describe -t commands 'command of stepscope' commands
    return
  fi
  local command=$words[2]
  # _arguments counts from the command on.
  shift words
  (( CURRENT-- ))
  case $command in
)";
  for (const Command* command : commands) {
    text += "    " + std::string(command->name) + ")\n      _arguments -S";
    for (const Option& option : command->options) text += ZshOption(option);
    text += ZshOption(kHelpOption);
    const std::string given = ArgumentWords(*command, commands, words);
    if (command->completes == Arguments::kTraceThenSettings) {
      // No blank is added behind a setting, because its value follows.
      text += " \\\n        '1:trace:_files' \\\n        " +
              ShellQuoted("*:setting:{compadd -S \"\" - " + given + "}");
    } else if (TakesPaths(*command)) {
      text += " \\\n        '*:trace or folder:_files'";
    } else if (!given.empty()) {
      text += " \\\n        " + ShellQuoted("*:argument:(" + given + ")");
    }
    text += " ;;\n";
  }
  return text + R"(  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _stepscope "$@"
else
  compdef _stepscope stepscope
fi
)";
}

std::string FishScript(Commands commands, const CompletedWords& words) {
  std::string text = R"(# Completion of stepscope in fish.
complete -c stepscope -f
complete -c stepscope -n __fish_use_subcommand -l help -s h -d 'print the usage'
complete -c stepscope -n __fish_use_subcommand -l version -s V -d 'print the version'
)";
  for (const Command* command : commands) {
    const std::string name(command->name);
    const std::string when =
        "complete -c stepscope -n '__fish_seen_subcommand_from " + name + "'";
    text += "complete -c stepscope -n __fish_use_subcommand -a " + name +
            " -d " + ShellQuoted(command->summary) + "\n";
    if (TakesPaths(*command)) text += when + " -F\n";
    const std::string given = ArgumentWords(*command, commands, words);
    if (!given.empty()) text += when + " -a " + ShellQuoted(given) + "\n";
    for (const Option& option : command->options) {
      text += when + " -l " + std::string(option.name.substr(2));
      if (!option.short_name.empty())
        text += " -s " + std::string(option.short_name.substr(1));
      // -x: takes a value that is not a file.
      if (option.takes_value()) text += IsPath(option) ? " -r -F" : " -x";
      if (!option.choices.empty())
        text += " -a " + ShellQuoted(Spaced(option.choices));
      text += " -d " + ShellQuoted(option.help) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string CompletionScript(std::string_view shell, Commands commands,
                             const CompletedWords& words) {
  if (shell == "zsh") return ZshScript(commands, words);
  return shell == "fish" ? FishScript(commands, words)
                         : BashScript(commands, words);
}

}  // namespace stepscope
