#include "gate.h"

#include <absl/status/status.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <tuple>

#include "engine/ranking.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr int kPassed = 0, kNoVerdict = 1, kFailed = 4;

// The range of n values contains their median in 1 - 2 / 2^n of all cases. For
// fewer than 6 values this is less than 95 %.
constexpr int64_t kStepsForInterval = 6;

// Returns the number before `unit`; nothing if the text has another form.
std::optional<double> ReadNumber(std::string_view text, std::string_view unit) {
  if (!text.ends_with(unit)) return {};
  text.remove_suffix(unit.size());
  double number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  const bool valid = result.ec == std::errc() && result.ptr == end &&
                     std::isfinite(number) && number >= 0;
  return valid ? std::optional(number) : std::nullopt;
}

// Returns how much longer, in ms per step, the training thread of the second
// trace was ready to run but had no core. The machine causes this, not the
// program.
double MoreContendedMs(const Comparison& comparison) {
  const auto row =
      std::ranges::find(comparison.causes, "contended", &ComparedTime::name);
  if (row == comparison.causes.end()) return 0;
  return std::max(row->after_ms * comparison.batch_scale - row->before_ms, 0.0);
}

GateVerdict NoVerdict(const std::string& why) {
  return {kNoVerdict, "no verdict: " + why};
}

// True if the finding is severe for every gain within its likely range.
bool IsSurely(FindingSeverity least, const Report& report,
              const Finding& finding) {
  // 1e-9 prevents a division by zero for a report without a step time.
  const double share =
      finding.gain.low_ms / std::max(BaselineMs(report, finding), 1e-9);
  return finding.gain_kind == GainKind::kPredicted &&
         finding.status != FindingStatus::kOk && finding.severity >= least &&
         SeverityOfShare(share) >= least;
}

}  // namespace

absl::StatusOr<std::optional<SlowerLimits>> SlowerLimitsOf(
    const CommandWords& words) {
  std::optional<SlowerLimits> limits;
  for (const auto& [option, unit, form] :
       {std::tuple{"--fail-over", "%", "a percentage such as 5%"},
        std::tuple{"--min-ms", "", "a number of milliseconds"}}) {
    if (!words.has(option)) continue;
    const std::string text = words.value(option);
    const std::optional<double> number = ReadNumber(text, unit);
    if (!number) {
      return absl::InvalidArgumentError(std::string(option) + " must be " +
                                        form + ", not '" + text + "'");
    }
    if (!limits) limits.emplace();
    if (*unit == '%') {
      limits->frac = *number / 100;
    } else {
      limits->min_ms = *number;
    }
  }
  return limits;
}

GateVerdict JudgeComparison(const Comparison& comparison,
                            const SlowerLimits& limits) {
  if (!comparison.why_not.empty()) return NoVerdict(comparison.why_not);
  const int64_t least =
      std::min(comparison.before.steps, comparison.after.steps);
  if (least < kStepsForInterval) {
    return NoVerdict("the comparison needs " +
                     std::to_string(kStepsForInterval) +
                     " steady steps in each trace, and one has " +
                     std::to_string(least) + "; record more steps");
  }
  // Use the larger limit, because both must be exceeded.
  const double limit_ms =
      std::max(limits.frac * comparison.before.step_ms, limits.min_ms);
  const Gain& gained = comparison.measured;
  // A gain is how much faster the second run is. If it is slower, gains are
  // negative, and the smallest loss is -high.
  if (-gained.high_ms <= limit_ms) return {kPassed, ""};
  const double contended_ms = MoreContendedMs(comparison);
  if (-gained.high_ms - contended_ms <= limit_ms) {
    return {kPassed, "slower by " + Number(-gained.expected_ms) +
                         " ms per step, but passed: the training thread waited "
                         "for a core for " +
                         Number(contended_ms) + " ms more"};
  }
  return {kFailed, "slower by " + Number(-gained.expected_ms) +
                       " ms per step (95 %: " + Number(-gained.high_ms) +
                       " to " + Number(-gained.low_ms) + "), more than the " +
                       Number(limit_ms) + " ms allowed"};
}

absl::StatusOr<std::optional<FindingSeverity>> FailOnOf(
    const CommandWords& words) {
  if (!words.has("--fail-on")) return std::optional<FindingSeverity>();
  const auto severity = ChoiceOf(words, "--fail-on", kSeverityChoices);
  if (!severity.ok()) return severity.status();
  // kSeverityChoices has no notes, so its first index is kLow.
  return std::optional(static_cast<FindingSeverity>(
      static_cast<size_t>(FindingSeverity::kLow) + *severity));
}

GateVerdict JudgeReports(const std::vector<Report>& reports,
                         FindingSeverity least) {
  GateVerdict verdict;
  for (const Report& report : reports) {
    // Do not stop here: another report may have a severe finding, which
    // outranks this verdict.
    if (report.steps.count == 0 && verdict.status == kPassed)
      verdict = NoVerdict("the trace has no steps");
    for (const Finding& finding : report.findings) {
      if (!IsSurely(least, report, finding)) continue;
      return {kFailed, finding.id + " is " + SeverityName(finding.severity) +
                           ": its change gains at least " +
                           Number(finding.gain.low_ms) + " of " +
                           Number(BaselineMs(report, finding)) +
                           " ms per step"};
    }
  }
  return verdict;
}

}  // namespace stepscope
