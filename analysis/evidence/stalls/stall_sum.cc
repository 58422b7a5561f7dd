#include "evidence/stalls/stall_sum.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ops/student_t.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Distances between stalls count as one period if they differ by at most this
// share.
constexpr double kRegular = 0.2;

// How regularly the steps `at` recur.
struct Period {
  double steps = 0;  // 0: no period
  std::string words = {};
};
Period PeriodOf(const std::vector<size_t>& at) {
  std::vector<double> apart;
  for (size_t i = 1; i < at.size(); ++i) {
    apart.push_back(static_cast<double>(at[i] - at[i - 1]));
  }
  if (apart.empty()) return {};
  const double usual = Median(apart);
  if (apart.size() == 1) return {usual, Times(usual) + " steps apart"};
  const auto [least, most] = std::ranges::minmax(apart);
  // A difference of one step is still regular, because the period need not be a
  // whole number.
  if (most - least > std::max(1.0, kRegular * usual)) return {};
  if (least == most) {
    return {usual, "every " + Ordinal(static_cast<int64_t>(usual)) + " step"};
  }
  const double mean = static_cast<double>(at.back() - at.front()) /
                      static_cast<double>(apart.size());
  return {mean, "about every " + Times(std::round(usual)) + " steps"};
}

// Returns the stalls per step. Counting the stalls of the recording would be
// off by up to one, because it also holds part of the last period. If there is
// a period, and no stall is missing at either end, the period tells the rate.
double RateOf(const AnalysisContext& context, const std::vector<size_t>& at,
              double period, size_t steps) {
  const double before = static_cast<double>(at.front());
  const double behind =
      static_cast<double>(context.steps.windows.size() - 1 - at.back());
  return period > 0 && before <= period && behind <= period
             ? 1 / period
             : static_cast<double>(at.size()) /
                   static_cast<double>(std::max<size_t>(steps, 1));
}

// Returns how much longer a step takes after one of the steps `at` than other
// steps, in ns: caches fill again, or data are still being written. 0 if it
// takes no longer, or if there are fewer than two steps of either kind.
double AftermathNs(const AnalysisContext& context, const Stalls& stalls,
                   const std::vector<size_t>& at) {
  double after = 0, afters = 0, other = 0, others = 0;
  for (size_t i = 0; i < context.steps.windows.size(); ++i) {
    const StepKind kind = context.steps.windows[i].kind;
    if (kind == StepKind::kWarmUp || kind == StepKind::kValidation ||
        std::ranges::binary_search(stalls.stalls, i, {}, &Stall::step)) {
      continue;
    }
    const auto ns = static_cast<double>(context.facts[i].length_ns);
    const bool follows = i > 0 && std::ranges::binary_search(at, i - 1);
    (follows ? after : other) += ns;
    ++(follows ? afters : others);
  }
  if (afters < 2 || others < 2) return 0;
  return std::max(0.0, after / afters - other / others);
}

// Returns half of the 95 % interval of the mean excess, as a share of the mean.
double ErrorOf(const std::vector<const Stall*>& stalls, double mean_ns) {
  const auto count = static_cast<double>(stalls.size());
  if (count < 2 || mean_ns <= 0) return 0;
  double squares = 0;
  for (const Stall* stall : stalls) {
    squares += (stall->excess_ns - mean_ns) * (stall->excess_ns - mean_ns);
  }
  return StudentT(stalls.size() - 1, Within::k95) *
         std::sqrt(squares / (count - 1) / count) / mean_ns;
}

}  // namespace

StallSum SumOf(const AnalysisContext& context, StallKind kind) {
  const Stalls& stalls = context.stalls;
  StallSum sum;
  std::vector<const Stall*> some;
  std::vector<size_t> at;
  for (const Stall& stall : stalls.stalls) {
    if (stall.kind != kind) continue;
    some.push_back(&stall);
    at.push_back(stall.step);
    sum.each_ns += stall.excess_ns;
  }
  if (some.empty()) return sum;
  const auto steps = static_cast<double>(std::max<size_t>(stalls.steps, 1));
  const double in_recording = sum.each_ns / steps;
  sum.count = static_cast<int64_t>(some.size());
  sum.each_ns /= static_cast<double>(sum.count);
  Period period = PeriodOf(at);
  sum.every = std::move(period.words);
  const double rate = RateOf(context, at, period.steps, stalls.steps);
  sum.lost_ns = sum.each_ns * rate;
  sum.most_ns = sum.lost_ns * (1 + ErrorOf(some, sum.each_ns)) +
                rate * AftermathNs(context, stalls, at);
  // The mean step of a long run: the recorded mean without the recorded stalls,
  // plus stalls at their estimated rate.
  sum.step_ns = context.stats.all_mean_ms * 1e6 - in_recording + sum.lost_ns;
  std::ranges::stable_sort(some, std::greater(), &Stall::excess_ns);
  for (const Stall* stall : some) {
    if (sum.what.empty() && sum.after.empty()) {
      sum.what = stall->what;
      sum.after = stall->after;
    }
    if (sum.examples.size() == 3) break;
    const StepWindow& step = context.steps.windows[stall->step];
    sum.examples.push_back({step.number, step.tiled.begin_ns, step.tiled.end_ns,
                            "a step that " + StallInWords(*stall)});
  }
  return sum;
}

std::string StepsInWords(const StallSum& sum, const Stalls& stalls) {
  return Count(sum.count, "step") + " of " + std::to_string(stalls.steps) +
         (sum.every.empty() ? "" : " (" + sum.every + ")");
}

std::string StallInWords(const Stall& stall) {
  const std::string time = Milliseconds(stall.ns * 1e-6);
  const std::string named = stall.what.empty() ? "" : " in " + stall.what;
  switch (stall.kind) {
    case StallKind::kGarbage:
      return "collects garbage for " + time;
    case StallKind::kLoading:
      return "waits " + time + " longer for batches";
    case StallKind::kCommunicating:
      return "spends " + time + " more on collectives";
    case StallKind::kCompiling:
      return "compiles for " + time;
    case StallKind::kSaving:
      return "saves or logs for " + time + named;
    case StallKind::kOwnWork:
      return stall.after.empty()
                 ? "spends " + time + named
                 : "runs no op for " + time + " after " + stall.after;
    case StallKind::kPause:
      return "runs no op for " + time;
    case StallKind::kOps:
      return "spends " + time + " more" + named;
    case StallKind::kValidation:
      return "validates for " + Milliseconds(stall.excess_ns * 1e-6) +
             (stall.what.empty() ? "" : ", longest in " + stall.what);
    case StallKind::kUnknown:
      return "is slower throughout";
  }
  return "";
}

}  // namespace stepscope
