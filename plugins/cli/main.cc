// The program `stepscope`.
#include <cstdio>
#include <string>
#include <vector>

#include "advice_commands.h"
#include "analyze.h"
#include "arguments.h"
#include "doctor.h"
#include "trace_commands.h"
#include "usage.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (const auto status = stepscope::RunTraceCommand(words)) return *status;
  if (const auto status = stepscope::RunAdviceCommand(words)) return *status;
  const absl::StatusOr<stepscope::Arguments> arguments =
      stepscope::ParseArguments(words);
  if (!arguments.ok()) {
    std::fprintf(stderr, "stepscope: %s\n",
                 std::string(arguments.status().message()).c_str());
    return 2;
  }
  switch (arguments->command) {
    case stepscope::Command::kHelp:
      std::fputs(stepscope::kUsage, stdout);
      return 0;
    case stepscope::Command::kAnalyzeHelp:
      std::fputs(stepscope::kAnalyzeUsage, stdout);
      return 0;
    case stepscope::Command::kDoctorHelp:
      std::fputs(stepscope::kDoctorUsage, stdout);
      return 0;
    case stepscope::Command::kDoctor:
      return stepscope::RunDoctor(*arguments);
    case stepscope::Command::kVersion:
      std::puts("stepscope " STEPSCOPE_VERSION);
      return 0;
    case stepscope::Command::kAnalyze:
      break;
  }
  return stepscope::RunAnalyze(*arguments);
}
