// The commands of `stepscope`. Each takes the words after the program's name,
// its own name first, and returns the exit status: 0 done, 1 something could
// not be read or written, 2 wrong usage. Results go to standard output or to
// the file after --output, errors to standard error. Only analyze uses more
// than one thread.
#pragma once

#include <span>
#include <string>

namespace stepscope {

using Words = std::span<const std::string>;

// The report of one trace, or one report of all ranks of a job.
int AnalyzeCommand(Words words);
// The same, or a comparison of two, as a page for a browser.
int ReportCommand(Words words);
// Two traces, before and after a change.
int CompareCommand(Words words);
// The predicted step time under settings that nobody has tried.
int WhatIfCommand(Words words);
// All rules, one line each; some rules in full.
int RulesCommand(Words words);
int ExplainCommand(Words words);
// What a trace contains, without judging it.
int InfoCommand(Words words);
// Operators, ranges, calls, kernels and copies by time.
int TopCommand(Words words);
// A trace in another format.
int ConvertCommand(Words words);
// Whether this machine has what recording and viewing need. Exit status 1 also
// where something is missing.
int DoctorCommand(Words words);

}  // namespace stepscope
