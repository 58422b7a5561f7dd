#include <string>
#include <string_view>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "output.h"
#include "run_list.h"

namespace stepscope {
namespace {

constexpr std::string_view kFormats[] = {"text", "json"};
constexpr Option kOptions[] = {{.name = "--format",
                                .value = "FORMAT",
                                .help = "output format (default: text)",
                                .choices = kFormats},
                               {.name = "--output",
                                .short_name = "-o",
                                .value = "FILE",
                                .help = "write to FILE"}};

int RunList(const CommandWords& given) {
  const auto format = ChoiceOf(given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  if (given.arguments.size() != 1)
    return UsageError("list needs one folder: stepscope list DIR");
  const std::string& dir = given.arguments[0];
  const auto runs = ListRuns(dir);
  if (!runs.ok()) {
    PrintError(runs.status());
    return 1;
  }
  // In JSON an empty folder is an empty list, and no error: a script may look
  // before the first run has written anything.
  if (runs->empty() && *format == 0) {
    PrintError("no runs and no traces in " + dir);
    return 1;
  }
  const std::string output = given.value("--output");
  return WriteResult(*format == 1
                         ? ToJson(*runs, dir)
                         : FitLines(ToText(*runs, dir), WidthFor(output, 0)),
                     output);
}

}  // namespace

const Command kListCommand = {
    .name = "list",
    .arguments = "DIR",
    .summary = "list the runs of a log directory by name",
    .description =
        "Lists the runs in DIR and in the folders below it, oldest first: "
        "name, start, and for each recorded window the ranks, the step time "
        "and the first finding of its report. Reads reports, not traces.",
    .options = kOptions,
    .exit_status =
        "0 listed, with --format json also an empty DIR, 1 DIR has no runs or "
        "cannot be read, 2 wrong usage.",
    .run = RunList};

}  // namespace stepscope
