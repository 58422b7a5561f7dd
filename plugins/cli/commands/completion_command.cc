#include <stepscope/rules.h>

#include <algorithm>
#include <string>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "output.h"
#include "usage/completion.h"
#include "what_if/settings.h"

namespace stepscope {
namespace {

constexpr Option kOptions[] = {{.name = "--output",
                                .short_name = "-o",
                                .value = "FILE",
                                .help = "write to FILE"}};

std::vector<Term> Installation() {
  return {{"bash", "source <(stepscope completion bash), in ~/.bashrc"},
          {"zsh",
           "source <(stepscope completion zsh), in ~/.zshrc, after "
           "compinit"},
          {"fish",
           "stepscope completion fish -o "
           "~/.config/fish/completions/stepscope.fish"}};
}

int RunCompletion(const CommandWords& given) {
  const auto& shells = kShells;
  if (given.arguments.size() != 1 ||
      std::ranges::find(shells, given.arguments[0]) == std::end(shells)) {
    return UsageError(
        "completion needs the name of a shell: stepscope completion "
        "bash|zsh|fish");
  }
  // Uses the tables that the commands themselves read, so that the script fits
  // the program that printed it.
  CompletedWords words;
  for (const RuleText& rule : RuleTexts()) words.rules.push_back(rule.id);
  words.settings = SettingNames();
  return WriteResult(CompletionScript(given.arguments[0], AllCommands(), words),
                     given.value("--output"));
}

}  // namespace

const Command kCompletionCommand = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .summary = "print a script that completes commands and options",
    .description =
        "Prints a script with which the shell completes the commands, their "
        "options and values, the IDs of rules and the settings of what-if.",
    .terms_title = "To use it:",
    .terms = Installation,
    .options = kOptions,
    .exit_status = "0 done, 1 the output could not be written, 2 wrong usage.",
    .completes = Arguments::kShells,
    .run = RunCompletion};

}  // namespace stepscope
