#include "report/step_text.h"

#include <map>
#include <string_view>

#include "words/quantities.h"

namespace stepscope {
namespace {

// Returns how many steps are of `kind`, then `words`, then the numbers of the
// steps: "3 with a checkpoint (7, 12, 17)". Empty if there are none.
std::string StepsOfKind(const Report& report, std::string_view kind,
                        const char* words) {
  std::vector<int64_t> numbers;
  for (const StepTimes& step : report.step_times) {
    if (step.kind == kind) numbers.push_back(step.number);
  }
  if (numbers.empty()) return "";
  return std::to_string(numbers.size()) + " " + words + " (" +
         FirstOf(numbers) + ")";
}

}  // namespace

std::string AveragedStepsText(const Report& report) {
  const StepStats& steps = report.steps;
  if (steps.steady >= steps.count) return "";
  std::string excluded;
  for (const auto& [kind, words] :
       {std::pair{"warm-up", "warm-up"},
        std::pair{"validation", "with validation"},
        std::pair{"checkpoint", "with a checkpoint or heavy logging"},
        std::pair{"slow", "slow"}}) {
    const std::string some = StepsOfKind(report, kind, words);
    if (some.empty()) continue;
    excluded += (excluded.empty() ? "; excluded: " : ", ") + some;
  }
  return "mean of " + Count(steps.steady, "steady step") + " out of " +
         std::to_string(steps.count) + excluded;
}

std::string UnprofiledText(const Report& report) {
  const StepStats& steps = report.steps;
  // If it is printed like the mean step, nobody misses the difference.
  if (steps.unprofiled_ms <= 0 || steps.mean_ms < steps.unprofiled_ms ||
      Milliseconds(steps.mean_ms) == Milliseconds(steps.unprofiled_ms)) {
    return "";
  }
  return "about " + Milliseconds(steps.unprofiled_ms) +
         " without the profiler, whose cost was " +
         (steps.cost_estimated ? "estimated" : "measured") +
         "; gains refer to that time";
}

std::string StallsText(const Report& report) {
  const StepTimes* longest = nullptr;
  std::vector<int64_t> numbers;
  for (const StepTimes& step : report.step_times) {
    if (step.why.empty()) continue;
    numbers.push_back(step.number);
    if (longest == nullptr || step.ms > longest->ms) longest = &step;
  }
  const StepStats& steps = report.steps;
  // Stalls that hardly raise the mean are not worth a line.
  if (longest == nullptr ||
      steps.all_mean_ms < (1 + kMentionedFrac) * steps.median_ms) {
    return "";
  }
  const std::string raised =
      " the mean of all steps to " + Milliseconds(steps.all_mean_ms) +
      ", against a median of " + Milliseconds(steps.median_ms);
  const std::string step = "step " + std::to_string(longest->number) + " (" +
                           Milliseconds(longest->ms) + ")";
  if (numbers.size() == 1) {
    return "1 slow step raises" + raised + ": " + step + " " + longest->why;
  }
  return std::to_string(numbers.size()) + " slow steps (" + FirstOf(numbers) +
         ") raise" + raised + "; the longest, " + step + ", " + longest->why;
}

std::vector<std::string> MemoryPeakLines(
    const std::vector<MemorySummary>& memory) {
  // One line per device, for its highest peak.
  std::map<std::string, const MemorySummary*> highest;
  for (const MemorySummary& one : memory) {
    const MemorySummary*& most = highest[one.device];
    if (most == nullptr || one.peak_bytes > most->peak_bytes) most = &one;
  }
  std::vector<std::string> lines;
  for (const auto& [device, most] : highest) {
    std::string text =
        device + ": at most " + Bytes(static_cast<double>(most->peak_bytes)) +
        (most->is_counted ? " allocated during the recording" : " in use");
    if (most->reserved_bytes > 0) {
      text += " of " + Bytes(static_cast<double>(most->reserved_bytes)) +
              " reserved";
    }
    if (most->step >= 0) {
      text += (most->op.empty() ? ", held since before step " : ", in step ") +
              std::to_string(most->step);
    }
    if (!most->op.empty()) text += ", at " + most->op;
    if (most->is_counted) {
      text += "; older memory, such as parameters, is not counted";
    }
    lines.push_back(std::move(text));
  }
  return lines;
}

}  // namespace stepscope
