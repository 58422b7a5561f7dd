// Checks that a report of any source leaves nothing large unexplained.
#pragma once

#include <stepscope/report.h>

#include <algorithm>
#include <set>
#include <string>

#include "engine/coverage.h"

namespace stepscope {

inline std::set<std::string> LargeCauses(const Report& report) {
  std::set<std::string> large;
  for (const auto& [cause, ms] : report.time_split_ms) {
    if (ms >= 0.05 * report.steps.mean_ms) large.insert(cause);
  }
  double path_ms = 0;
  for (const auto& [cause, ms] : report.path_split_ms) path_ms += ms;
  for (const auto& [cause, ms] : report.path_split_ms) {
    if (ms > 0 && ms >= 0.10 * path_ms) large.insert(cause);
  }
  return large;
}

inline double SavedBy(const Report& report, const CauseAnswer& answer) {
  double ms = 0;
  for (const Finding& finding : report.findings) {
    if (finding.severity != FindingSeverity::kNote &&
        std::ranges::count(answer.ids, finding.id) > 0) {
      ms += finding.gain.expected_ms;
    }
  }
  return ms;
}

// Returns what `report` leaves unexplained; empty if it explains every large
// cause. A cause of 5 % of the step, or of 10 % of the critical path, needs
// findings above note that may save half of it, or a reason why no change is
// offered. If no finding answers a cause, a rule that is mainly about it must
// not be listed as clean.
inline std::string Unexplained(const Report& report) {
  if (report.steps.count == 0) return "";
  std::string text;
  for (const std::string& cause : LargeCauses(report)) {
    const auto answer =
        std::ranges::find(report.coverage, cause, &CauseAnswer::cause);
    if (answer == report.coverage.end()) {
      text += cause + " is large and not mentioned\n";
      continue;
    }
    if (answer->why.empty()) {
      const bool in_split = answer->ms >= 0.05 * report.steps.mean_ms;
      const double all = in_split ? answer->ms : answer->path_ms;
      if (SavedBy(report, *answer) < 0.5 * all) {
        text += cause + ": findings save less than half of it\n";
      }
      continue;
    }
    for (const std::string& id : report.clean) {
      const auto causes = CausesOf(id);
      if (causes.empty() || CauseKey(causes.front()) != cause) continue;
      text += cause + ": " + id + " calls itself clean\n";
    }
  }
  return text;
}

}  // namespace stepscope
