// One case of the advice test: a program, what is wrong with it, and the same
// program with that fixed. support/program_simulator.h has the language.
//
// The files in cases/ hold them, in this form:
//   === name of the case
//   plant RULE ...        the fault: RULE must fire if fixing it saves 3 % of
//                         the step or more; of several, each on its own
//   note RULE             must be found, but as a note
//   allow RULE ...        may fire, because it is about the same fault; may
//                         also supersede the planted rule
//   vary NAME LOW..HIGH   $NAME in the program, drawn afresh for every seed
//   sporadic              only some steps have the fault, and the report leaves
//                         them out of its mean
//   pending WHY           left out of the quick test until WHY is done
//   ---
//   program; lines with "-" are the fault, lines with "+" its fix ("-2", "+2"
//   those of the second rule planted); $workers and $threads in them are what
//   the advice says
// Lines above the first case of a file belong to all programs in it.
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

// InvalidArgument names the line.
absl::StatusOr<std::vector<AdviceCase>> ParseCases(std::string_view text);

// All cases of the folder's files, in the order of their names.
absl::StatusOr<std::vector<AdviceCase>> ReadCases(const std::string& folder);

}  // namespace stepscope
