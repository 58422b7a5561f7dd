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
  // The same program over as many steps as the fixed ones below, with fresh
  // jitter. Its difference from now_ms is noise.
  double unfixed_ms = 0;
  // With one fault fixed as the advice says, by planted rule; empty if the case
  // has no fix.
  std::vector<double> fixed_ms;
  // With everything fixed that the plan names; 0 if there is no plan, or it
  // names something that was not planted.
  double planned_ms = 0;
  std::string program;  // with its numbers
};

// InvalidArgument if the case is not a valid program.
absl::StatusOr<Trial> Try(const AdviceCase& one, uint64_t seed);

// True if the report recommends a change for `id`; a note does not.
bool Urges(const Report& report, const std::string& id);
// The finding, notes included; null if there is none.
const Finding* FindingOf(const Report& report, const std::string& id);
// Ids of all rules: those that ran, were skipped, or were superseded.
std::vector<std::string> RulesIn(const Report& report);

}  // namespace stepscope
