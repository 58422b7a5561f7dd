// The commands of `stepscope`. `run` of each takes the words after its name and
// returns the exit status: 0 done, 1 something could not be read or written, 2
// wrong usage. Results go to standard output or to the file after --output,
// errors to standard error. Only analyze uses more than one thread.
#pragma once

#include <span>
#include <string>

#include "usage/usage_text.h"

namespace stepscope {

// In the order in which they are listed (main.cc).
Commands AllCommands();

// The report of one trace, or one report of all ranks of a job.
extern const Command kAnalyzeCommand;
// The same, or a comparison of two, as a page for a browser.
extern const Command kReportCommand;
// Two traces, before and after a change.
extern const Command kCompareCommand;
// The predicted step time under settings that nobody has tried.
extern const Command kWhatIfCommand;
// All rules, one line each; some rules in full.
extern const Command kRulesCommand;
extern const Command kExplainCommand;
// The runs of a log directory, by name.
extern const Command kListCommand;
// What a trace contains, without judging it.
extern const Command kInfoCommand;
// Operators, ranges, calls, kernels and copies by time.
extern const Command kTopCommand;
// A trace in another format.
extern const Command kConvertCommand;
// Whether this machine has what recording and viewing need. Exit status 1 also
// where something is missing.
extern const Command kDoctorCommand;
// Of the Python package: they have no `run`.
extern const Command kRunCommand;
extern const Command kViewCommand;
extern const Command kMcpCommand;
extern const Command kCatalogueCommand;
// The usage of a command, and the manual page.
extern const Command kHelpCommand;
// What a shell completes.
extern const Command kCompletionCommand;

}  // namespace stepscope
