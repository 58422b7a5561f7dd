// Stalls of one kind added up, and their words.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "evidence/stalls/stalls.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Distances between stalls that differ by no more are one period.
constexpr double kRegular = 0.2;

// "every 3rd step" of the steps at `at`; "" if they have no period.
std::string PeriodOf(const std::vector<size_t>& at) {
  std::vector<double> apart;
  for (size_t i = 1; i < at.size(); ++i) {
    apart.push_back(static_cast<double>(at[i] - at[i - 1]));
  }
  if (apart.empty()) return "";
  const double usual = Median(apart);
  if (apart.size() == 1) return Times(usual) + " steps apart";
  const auto [least, most] = std::ranges::minmax(apart);
  if (most - least > std::max(1.0, kRegular * usual)) return "";
  return least == most
             ? "every " + Ordinal(static_cast<int64_t>(usual)) + " step"
             : "about every " + Times(std::round(usual)) + " steps";
}

}  // namespace

StallSum SumOf(const AnalysisContext& context, const Stalls& stalls,
               StallKind kind) {
  StallSum sum;
  std::vector<const Stall*> some;
  std::vector<size_t> at;
  for (const Stall& stall : stalls.stalls) {
    if (stall.kind != kind) continue;
    some.push_back(&stall);
    at.push_back(stall.step);
    sum.lost_ns += stall.excess_ns;
  }
  if (some.empty()) return sum;
  sum.count = static_cast<int64_t>(some.size());
  sum.each_ns = sum.lost_ns / static_cast<double>(sum.count);
  sum.lost_ns /= static_cast<double>(std::max<size_t>(stalls.steps, 1));
  sum.every = PeriodOf(at);
  std::ranges::stable_sort(some, std::greater(), &Stall::excess_ns);
  for (const Stall* stall : some) {
    if (sum.what.empty()) sum.what = stall->what;
    if (sum.examples.size() == 3) break;
    const StepWindow& step = context.steps.windows[stall->step];
    sum.examples.push_back({step.number, step.tiled.begin_ns, step.tiled.end_ns,
                            "a step that " + StallInWords(*stall)});
  }
  return sum;
}

std::string StallInWords(const Stall& stall) {
  const std::string time = Milliseconds(stall.ns * 1e-6);
  const std::string named = stall.what.empty() ? "" : " in " + stall.what;
  switch (stall.kind) {
    case StallKind::kGarbage:
      return "collects garbage for " + time;
    case StallKind::kLoading:
      return "waits " + time + " longer for batches";
    case StallKind::kSaving:
      return "saves or logs for " + time + named;
    case StallKind::kOwnWork:
      return "spends " + time + named;
    case StallKind::kPause:
      return "runs no op for " + time;
    case StallKind::kOps:
      return "spends " + time + " more" + named;
    case StallKind::kUnknown:
      return "is slower throughout";
  }
  return "";
}

}  // namespace stepscope
