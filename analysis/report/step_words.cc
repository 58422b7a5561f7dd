#include "report/step_words.h"

#include <map>
#include <string_view>

#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kNumbersShown = 4;

// "with a checkpoint (7, 12, 17)" for the steps of one kind.
std::string OfKind(const Report& report, std::string_view kind,
                   const char* words) {
  std::string numbers;
  size_t count = 0;
  for (const StepTimes& step : report.step_times) {
    if (step.kind != kind) continue;
    if (++count > kNumbersShown) continue;
    numbers += (count > 1 ? ", " : "") + std::to_string(step.number);
  }
  if (count == 0) return "";
  if (count > kNumbersShown) numbers += ", ...";
  return std::to_string(count) + " " + words + " (" + numbers + ")";
}

}  // namespace

std::string StepsInWords(const Report& report) {
  const StepStats& steps = report.steps;
  if (steps.steady >= steps.count) return "";
  std::string left_out;
  for (const auto& [kind, words] :
       {std::pair{"warm-up", "warming up"},
        std::pair{"validation", "with validation"},
        std::pair{"checkpoint", "with a checkpoint or much logging"},
        std::pair{"slow", "slow for another reason"}}) {
    const std::string some = OfKind(report, kind, words);
    if (some.empty()) continue;
    left_out += (left_out.empty() ? "; left out: " : ", ") + some;
  }
  return "averaged over " + Count(steps.steady, "steady step") + " of " +
         std::to_string(steps.count) + left_out;
}

std::vector<std::string> PeaksInWords(
    const std::vector<MemorySummary>& memory) {
  std::map<std::string, const MemorySummary*> highest;
  for (const MemorySummary& one : memory) {
    const MemorySummary*& most = highest[one.device];
    if (most == nullptr || one.peak_bytes > most->peak_bytes) most = &one;
  }
  std::vector<std::string> lines;
  for (const auto& [device, most] : highest) {
    std::string text = device + ": at most " +
                       Bytes(static_cast<double>(most->peak_bytes)) +
                       (most->is_counted ? " seen to be in use" : " in use");
    if (most->reserved_bytes > 0) {
      text += " of " + Bytes(static_cast<double>(most->reserved_bytes)) +
              " reserved";
    }
    if (most->step >= 0) text += ", in step " + std::to_string(most->step);
    text += most->op.empty() ? ", held from before" : ", at " + most->op;
    lines.push_back(std::move(text));
  }
  return lines;
}

}  // namespace stepscope
