// SlowStepInWords(): what a slow step of a recording did in its extra time.
#include <stepscope/analysis.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// A step is slow from 1.2 times the mean of the others on, as in steps/.
constexpr double kSlowerTimes = 1.2;
// A range or a cause explains the excess if it has half of it.
constexpr double kExplainsFrac = 0.5;

using NamedMs = std::map<std::string, double, std::less<>>;

// Returns the name with the most time in `slow` beyond its mean in `others`,
// and sets `ms` to that time. Empty if it explains less than half of
// `excess_ms`.
std::string LargestExcess(const NamedMs& slow, const NamedMs& others,
                          size_t count, double excess_ms, double* ms) {
  std::string name;
  // A smaller part of the excess does not explain it.
  *ms = kExplainsFrac * excess_ms;
  for (const auto& [key, value] : slow) {
    const auto usual = others.find(key);
    const double more =
        value - (usual == others.end() ? 0 : usual->second / count);
    if (more < *ms) continue;
    *ms = more;
    name = key;
  }
  return name;
}

// Adds up the outermost ranges of the training thread by name: those in step
// `number` to `slow`, and those in all other steps to `others`.
void AddRanges(const Trace& trace, int64_t number, NamedMs& slow,
               NamedMs& others) {
  if (trace.steps().empty()) return;
  const RowId thread = trace.steps().front().thread;
  int64_t outer_end = 0;
  for (const Range& range : trace.ranges()) {
    if (range.thread != thread) continue;
    // Ranges are sorted by their start, so a range that ends before the end of
    // the last outermost one lies inside it.
    if (range.end_ns <= outer_end) continue;
    for (const Step& step : trace.steps()) {
      // A range belongs to the step in which it begins, up to that step's end.
      if (range.begin_ns < step.begin_ns || range.begin_ns >= step.end_ns) {
        continue;
      }
      outer_end = range.end_ns;
      NamedMs& sum = step.number == number ? slow : others;
      sum[std::string(trace.name(range.name))] +=
          (std::min(range.end_ns, step.end_ns) - range.begin_ns) * 1e-6;
    }
  }
}

}  // namespace

std::string SlowStepInWords(const Trace& trace, const Report& report,
                            int64_t number) {
  const StepTimes* slow = nullptr;
  double others_ms = 0;
  size_t count = 0;
  NamedMs in_slow, in_others;
  for (const StepTimes& step : report.step_times) {
    if (step.number == number) {
      slow = &step;
      in_slow = {step.time_split_ms.begin(), step.time_split_ms.end()};
      continue;
    }
    others_ms += step.ms;
    ++count;
    for (const auto& [cause, ms] : step.time_split_ms) in_others[cause] += ms;
  }
  if (slow == nullptr || count == 0) return "";
  const double excess_ms = slow->ms - others_ms / count;
  if (slow->ms < kSlowerTimes * others_ms / count) return "";

  std::string text;
  if (slow->kind == "validation") text = "validation, ";
  if (slow->kind == "checkpoint") text = "a checkpoint or heavy logging, ";
  NamedMs ranges, other_ranges;
  AddRanges(trace, number, ranges, other_ranges);
  double ms = 0;
  const std::string range =
      LargestExcess(ranges, other_ranges, count, excess_ms, &ms);
  // A range is preferred to a cause, because the program's own name for the
  // work says more.
  if (!range.empty()) {
    return text + "\"" + range + "\" takes " + Milliseconds(ms) + " longer";
  }
  const std::string cause =
      LargestExcess(in_slow, in_others, count, excess_ms, &ms);
  if (cause.empty()) return text + "no single cause";
  return text + CauseInWords(cause, report.has_gpu) + " takes " +
         Milliseconds(ms) + " longer";
}

}  // namespace stepscope
