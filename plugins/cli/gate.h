// Verdicts for scripts and CI: exit status 4 where a program became slower, or
// has a severe finding, beyond what noise explains.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/compare.h>
#include <stepscope/report.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command_words.h"

namespace stepscope {

struct GateVerdict {
  // 0 passed; 4 failed; 1 the traces allow no verdict.
  int status = 0;
  // One line for standard error; empty if there is nothing to say.
  std::string why;
};

// What a comparison may lose.
struct SlowerLimits {
  double frac = 0;  // of the median step before
  double min_ms = 0;
};

// From --fail-over and --min-ms; empty where neither is given. Errors:
// InvalidArgument.
absl::StatusOr<std::optional<SlowerLimits>> SlowerLimitsOf(
    const CommandWords& words);

// Fails if the whole 95 % interval lies beyond both limits, also without the
// time for which the second run had no core (cause `contended`). Of fewer than
// 6 steady steps in a trace there is no such interval, and so no verdict.
GateVerdict JudgeComparison(const Comparison& comparison,
                            const SlowerLimits& limits);

// Of --fail-on.
inline constexpr std::string_view kSeverityChoices[] = {"low", "medium", "high",
                                                        "critical"};

// From --fail-on; empty where it is not given. Errors: InvalidArgument.
absl::StatusOr<std::optional<FindingSeverity>> FailOnOf(
    const CommandWords& words);

// Fails if a finding with a predicted gain is as severe as `least`, and would
// be at the low end of its likely range, too. Without steps: no verdict.
GateVerdict JudgeReports(const std::vector<Report>& reports,
                         FindingSeverity least);

}  // namespace stepscope
