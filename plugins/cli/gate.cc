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

// The range of n values covers their median in 1 - 2 / 2^n of all cases: of
// fewer than 6, less than 95 %.
constexpr int64_t kStepsForInterval = 6;

// The number before `unit`; nothing if the text is another.
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

// How much longer the training thread was ready to run in the second trace, but
// had no core: that is the machine's doing, not the program's.
double MoreContendedMs(const Comparison& comparison) {
  const auto row =
      std::ranges::find(comparison.causes, "contended", &ComparedTime::name);
  if (row == comparison.causes.end()) return 0;
  return std::max(row->after_ms * comparison.batch_scale - row->before_ms, 0.0);
}

GateVerdict NoVerdict(const std::string& why) {
  return {kNoVerdict, "no verdict: " + why};
}

// Severe whatever the gain turns out to be within its likely range.
bool IsSurely(FindingSeverity least, const Report& report,
              const Finding& finding) {
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
  const double limit_ms =
      std::max(limits.frac * comparison.before.median_ms, limits.min_ms);
  const Gain& gained = comparison.measured;
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
  return std::optional(static_cast<FindingSeverity>(
      static_cast<size_t>(FindingSeverity::kLow) + *severity));
}

GateVerdict JudgeReports(const std::vector<Report>& reports,
                         FindingSeverity least) {
  GateVerdict verdict;
  for (const Report& report : reports) {
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
