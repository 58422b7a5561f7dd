// One case of the advice test: a program, its faults, and the same program
// with the faults fixed. support/program_simulator.h describes the language.
//
// The files in cases/ have this form:
//   === name of the case
//   plant RULE ...        the fault: RULE must fire if fixing it saves 3 % of
//                         the step or more; several rules are fixed one by one
//   note RULE             must be found, but as a note
//   allow RULE ...        may fire, because it is about the same fault; may
//                         also supersede the planted rule
//   vary NAME LOW..HIGH   $NAME in the program, drawn afresh for every seed
//   sporadic              only some steps have the fault, and the report leaves
//                         them out of its mean
//   pending WHY           left out of the quick test until WHY is done
//   ---
//   program; a line with "-" is the fault, one with "+" its fix ("-2" and "+2"
//   belong to the second planted rule); $workers and $threads in the fix are
//   the numbers that the advice recommends
// Lines above the first case of a file belong to every program in the file.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepscope {

struct AdviceCase {
  std::string name;
  std::vector<std::string> plant = {}, note = {}, allow = {};
  std::map<std::string, std::pair<double, double>> vary = {};
  std::string pending = {}, program = {};
  bool has_fix = false, sporadic = false;
};

// Returns the cases of a file's text. InvalidArgument names the bad line.
absl::StatusOr<std::vector<AdviceCase>> ParseCases(std::string_view text);

// Returns the cases of all files in the folder, ordered by file name.
absl::StatusOr<std::vector<AdviceCase>> ReadCases(const std::string& folder);

}  // namespace stepscope
