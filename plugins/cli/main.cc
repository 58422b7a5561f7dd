// The program `stepscope`: finds the command, reads its words and runs it.
#include <stepscope/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "memory_limit.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr const Command* kCommands[] = {
    &kAnalyzeCommand,   &kReportCommand,    &kCompareCommand, &kWhatIfCommand,
    &kRulesCommand,     &kExplainCommand,   &kListCommand,    &kInfoCommand,
    &kTopCommand,       &kConvertCommand,   &kViewCommand,    &kRunCommand,
    &kMcpCommand,       &kCatalogueCommand, &kDoctorCommand,  &kHelpCommand,
    &kCompletionCommand};

int UnknownWord(const std::string& word) {
  if (word.starts_with("-")) {
    return UsageError("unknown option '" + word +
                      "'. Options come after a command, as in: stepscope "
                      "analyze --verbose PATH");
  }
  // People who have only a trace try `stepscope trace.json` first.
  std::error_code error;
  if (std::filesystem::exists(word, error)) {
    return UsageError("'" + word +
                      "' is not a command. To analyse that file or folder, "
                      "run: stepscope analyze " +
                      word);
  }
  std::vector<std::string_view> names = {"version"};
  for (const Command* command : kCommands) names.push_back(command->name);
  return UsageError("unknown command '" + word + "'" + DidYouMean(word, names));
}

// `words` are the command's name and the words after it.
int RunCommand(const Command& command, std::span<const std::string> words) {
  // For commands of the Python package, this program has only the usage texts.
  if (command.run == nullptr &&
      std::ranges::find(words, kHelpOption.name) == words.end()) {
    PrintError(std::string(command.name) +
               " is a command of the Python package: pip install . at the "
               "clone's root, then stepscope " +
               std::string(command.name));
    return 1;
  }
  absl::StatusOr<CommandWords> given =
      ParseCommandWords(words, command.options);
  if (given.ok() && given->has("--help"))
    return WriteResult(UsageText(command, WidthFor("", kUsageColumns)), "");
  // Only if arguments are paths: for `explain` a "-" is just a wrong ID.
  if (given.ok() && (command.completes == Arguments::kPaths ||
                     command.completes == Arguments::kTraceThenSettings)) {
    std::ranges::replace(given->arguments, std::string("-"),
                         std::string(kStdin));
  }
  absl::Status usage = given.status();
  if (given.ok() && given->has("--output")) {
    usage = MayReplace(given->value("--output"), given->arguments);
  }
  const int status = usage.ok() ? command.run(*given) : UsageError(usage);
  constexpr int kWrongUsage = 2;
  if (status == kWrongUsage) {
    const int columns = TerminalColumns(STDERR_FILENO);
    std::fputs(
        ShortUsage(command, columns > 0 ? columns : kUsageColumns).c_str(),
        stderr);
  }
  return status;
}

int Run(std::span<const std::string> words) {
  if (words.empty()) {
    return UsageError(
        "no command given. Start with: stepscope analyze PATH...");
  }
  const std::string& first = words[0];
  if (first == "--help" || first == "-h") {
    const int width = WidthFor("", kUsageColumns);
    return WriteResult(ProgramUsageText(kCommands, width), "");
  }
  if (first == "--version" || first == "-V" || first == "version") {
    std::printf("stepscope %s\n", stepscope::Version());
    return 0;
  }
  const auto command = std::ranges::find(kCommands, first, &Command::name);
  if (command == std::end(kCommands)) return UnknownWord(first);
  return RunCommand(**command, words);
}

}  // namespace

Commands AllCommands() { return kCommands; }

}  // namespace stepscope

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  // Set first, because the limit is computed from the memory that is free now.
  stepscope::LimitMemory();
  return stepscope::RunInMemory([&] { return stepscope::Run(words); });
}
