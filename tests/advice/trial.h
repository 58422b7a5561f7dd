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
  double now_ms = 0;  // the exact step of the unfixed program
  // The unfixed program over as many steps as the fixed ones below, with fresh
  // jitter. The difference from now_ms is noise.
  double unfixed_ms = 0;
  // One entry per planted rule: the step with only that fault fixed as the
  // advice says. Empty if the case has no fix.
  std::vector<double> fixed_ms;
  // The step with all changes of the plan made; 0 if there is no plan, or it
  // names something that was not planted.
  double planned_ms = 0;
  std::string program;  // with the drawn numbers filled in
};

// InvalidArgument if the case is not a valid program.
absl::StatusOr<Trial> Try(const AdviceCase& one, uint64_t seed);

// True if the report recommends a change for `id`; a note does not.
bool Urges(const Report& report, const std::string& id);
// Returns the rule's finding, even if it is a note; null if there is none.
const Finding* FindingOf(const Report& report, const std::string& id);
// Returns the IDs of all rules that ran, were skipped, or were superseded.
std::vector<std::string> RulesIn(const Report& report);

}  // namespace stepscope
