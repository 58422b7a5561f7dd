// The commands of `stepscope`. Each `run` takes the words after the command's
// name and returns the exit status: 0 done, 1 something could not be read or
// written, 2 wrong usage. Results go to standard output or to the file after
// --output, errors to standard error. Only analyze uses more than one thread.
#pragma once

#include <span>
#include <string>

#include "usage/usage_text.h"

namespace stepscope {

// Returns the commands in the order in which they are listed (main.cc).
Commands AllCommands();

// The report of one trace, or one report of all ranks of a job.
extern const Command kAnalyzeCommand;
// The same report, or a comparison of two traces, as a page for a browser.
extern const Command kReportCommand;
// Compares two traces, before and after a change.
extern const Command kCompareCommand;
// Predicts the step time under other settings.
extern const Command kWhatIfCommand;
// Lists all rules, one line each; explains some rules in full.
extern const Command kRulesCommand;
extern const Command kExplainCommand;
// Lists the runs of a log directory by name.
extern const Command kListCommand;
// Shows what a trace contains, without judging it.
extern const Command kInfoCommand;
// Operators, ranges, calls, kernels and copies by time.
extern const Command kTopCommand;
// Writes a trace in another format.
extern const Command kConvertCommand;
// Checks whether this machine has what recording and viewing need. Exit status
// 1 also if something is missing.
extern const Command kDoctorCommand;
// Commands of the Python package, which have no `run`.
extern const Command kRunCommand;
extern const Command kViewCommand;
extern const Command kMcpCommand;
extern const Command kCatalogueCommand;
// Prints the usage of a command, or the manual page.
extern const Command kHelpCommand;
// Prints the completion script of a shell.
extern const Command kCompletionCommand;

}  // namespace stepscope
