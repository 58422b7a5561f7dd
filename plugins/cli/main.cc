// The program `stepscope`: finds the command and runs it.
#include <stepscope/version.h>

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

namespace stepscope {
namespace {

struct Command {
  std::string_view name;
  int (*run)(Words words);
};

constexpr Command kCommands[] = {
    {"analyze", AnalyzeCommand}, {"compare", CompareCommand},
    {"convert", ConvertCommand}, {"doctor", DoctorCommand},
    {"explain", ExplainCommand}, {"info", InfoCommand},
    {"report", ReportCommand},   {"rules", RulesCommand},
    {"top", TopCommand},         {"what-if", WhatIfCommand}};

constexpr const char* kUsage =
    R"(stepscope finds what slows a PyTorch training loop down and predicts what each
fix would gain.

Usage: stepscope COMMAND [options] ...

  analyze PATH...            report what to fix first, with the predicted gain
  report PATH... -o FILE     the same as one HTML page that works offline; of two
                             traces before and after a change, a comparison
  compare BEFORE AFTER       compare two traces: predicted and measured gain
  what-if TRACE KEY=VALUE... predict the step time under other settings
  rules                      list what a report looks for
  explain ID...              describe rules: when they report, what to do
  info PATH...               list what a trace contains
  top PATH                   rank operators, kernels and copies by time
  convert IN OUT             write a trace in another format
  doctor                     check what recording and viewing need here

  stepscope COMMAND --help   the options of a command
  stepscope --version
  stepscope --help

PATH is a trace of torch.profiler or of stepscope (.json, .json.gz, .json.zst),
an XSpace (.xplane.pb), a log directory of stepscope, or a folder with one trace
per rank.
)";

int UnknownWord(const std::string& word) {
  if (word.starts_with("-")) {
    return UsageError("unknown option '" + word +
                      "'. Options come after a command, as in: stepscope "
                      "analyze --verbose PATH");
  }
  // Somebody who has only a trace tries `stepscope trace.json` first.
  std::error_code error;
  if (std::filesystem::exists(word, error)) {
    return UsageError("'" + word +
                      "' is not a command. To analyse that file or folder, "
                      "run: stepscope analyze " +
                      word);
  }
  std::vector<std::string_view> names = {"help", "version"};
  for (const Command& command : kCommands) names.push_back(command.name);
  return UsageError("unknown command '" + word + "'" + DidYouMean(word, names));
}

int Run(Words words) {
  if (words.empty()) {
    return UsageError(
        "no command given. Start with: stepscope analyze PATH...");
  }
  const std::string& first = words[0];
  if (first == "--help" || first == "-h" || first == "help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (first == "--version" || first == "version") {
    std::printf("stepscope %s\n", stepscope::Version());
    return 0;
  }
  const auto* command = std::ranges::find(kCommands, first, &Command::name);
  if (command == std::end(kCommands)) return UnknownWord(first);
  return command->run(words);
}

}  // namespace
}  // namespace stepscope

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return stepscope::Run(words);
}
