// Verdicts for scripts and CI: exit status 4 if a program became slower, or has
// a severe finding, by more than noise explains.
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
  // 0: passed; 4: failed; 1: the traces allow no verdict.
  int status = 0;
  // One line for standard error; empty if there is nothing to say.
  std::string why;
};

// How much slower the second run may be.
struct SlowerLimits {
  double frac = 0;  // of the median step before
  double min_ms = 0;
};

// Reads --fail-over and --min-ms. Empty if neither is given. Errors:
// InvalidArgument.
absl::StatusOr<std::optional<SlowerLimits>> SlowerLimitsOf(
    const CommandWords& words);

// Fails if the whole 95 % interval lies beyond both limits, even without the
// time in which the second run had no core (cause `contended`). With fewer than
// 6 steady steps in a trace there is no such interval, and therefore no
// verdict.
GateVerdict JudgeComparison(const Comparison& comparison,
                            const SlowerLimits& limits);

// The values of --fail-on.
inline constexpr std::string_view kSeverityChoices[] = {"low", "medium", "high",
                                                        "critical"};

// Reads --fail-on. Empty if it is not given. Errors: InvalidArgument.
absl::StatusOr<std::optional<FindingSeverity>> FailOnOf(
    const CommandWords& words);

// Fails if a finding with a predicted gain is at least as severe as `least`,
// and would still be at the low end of its likely range. No verdict without
// steps.
GateVerdict JudgeReports(const std::vector<Report>& reports,
                         FindingSeverity least);

}  // namespace stepscope
