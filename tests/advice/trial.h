// One trial: a case with numbers drawn for one seed, simulated and analysed.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/report.h>

#include <cstdint>
#include <string>
#include <vector>

#include "advice/case.h"

namespace stepscope {

struct Trial {
  Report report;
  double now_ms = 0;  // the true step of the program as it is
  // The same over as many steps as the fixes below are simulated for, and with
  // other jitter: what is small against it is told by noise.
  double unfixed_ms = 0;
  // With one fault put right as the advice says, by planted rule; empty if the
  // case has no fix.
  std::vector<double> fixed_ms;
  // With all that the plan names put right; 0 if there is no plan, or it names
  // what was not planted.
  double planned_ms = 0;
  std::string program;  // with its numbers
};

// InvalidArgument where the case is no program.
absl::StatusOr<Trial> Try(const AdviceCase& one, uint64_t seed);

// Whether the report tells a user to do something about `id`: notes do not.
bool Urges(const Report& report, const std::string& id);
// The finding, notes included; null if there is none.
const Finding* FindingOf(const Report& report, const std::string& id);
// Ids of all rules that looked, could not, or were superseded.
std::vector<std::string> RulesIn(const Report& report);

}  // namespace stepscope
