// One case of the correctness bench: a program, what is wrong with it, and the
// same program with that put right.
//
// Cases stand in files; cases/README or any file there shows the form:
//   === name of the case
//   plant RULE ...        must be found (the planted fault) if putting it right
//                         brings 3 % or more; of several, each by itself
//   note RULE             must be found, but as a note
//   allow RULE ...        may be found: another sight of the same fault; may
//                         mute the planted one
//   vary NAME LOW..HIGH   $NAME in the program, drawn afresh for every seed
//   sporadic              the fault is in some steps, which the report sets
//                         apart: its mean is not that of all steps
//   pending WHY           left out of the quick test until that is done
//   ---
//   program; lines with "-" are the fault, lines with "+" its fix ("-2", "+2"
//   those of the second rule planted); $workers and $threads in them are what
//   the advice says
// What stands above the first case of a file belongs to all programs in it.
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
