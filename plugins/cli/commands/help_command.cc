#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "output.h"
#include "usage/man_page.h"

namespace stepscope {
namespace {

constexpr Option kOptions[] = {
    {.name = "--man", .help = "print the manual page, for man -l -"},
    {.name = "--output",
     .short_name = "-o",
     .value = "FILE",
     .help = "write to FILE"}};

int RunHelp(const CommandWords& given) {
  const std::string output = given.value("--output");
  if (given.has("--man")) {
    if (!given.arguments.empty())
      return UsageError("the manual page describes all commands");
    return WriteResult(ManPage(AllCommands()), output);
  }
  const int width = WidthFor(output, kUsageColumns);
  if (given.arguments.empty())
    return WriteResult(ProgramUsageText(AllCommands(), width), output);
  std::string text;
  // Collect all texts first: if one of several commands is misspelled, print
  // only the error and not half of the answer.
  for (const std::string& word : given.arguments) {
    const auto command = std::ranges::find(AllCommands(), word, &Command::name);
    if (command == AllCommands().end()) {
      std::vector<std::string_view> names;
      for (const Command* known : AllCommands()) names.push_back(known->name);
      return UsageError("unknown command '" + word + "'" +
                        DidYouMean(word, names));
    }
    text += (text.empty() ? "" : "\n") + UsageText(**command, width);
  }
  return WriteResult(text, output);
}

}  // namespace

const Command kHelpCommand = {
    .name = "help",
    .arguments = "[COMMAND...]",
    .summary = "print the options of a command",
    .description =
        "Prints what a command does and its options, as stepscope COMMAND "
        "--help does; without a command, the list of commands.",
    .options = kOptions,
    .exit_status = "0 done, 1 the output could not be written, 2 wrong usage.",
    .completes = Arguments::kCommands,
    .run = RunHelp};

}  // namespace stepscope
