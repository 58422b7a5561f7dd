#include "verdict.h"

#include <algorithm>
#include <cmath>

namespace cube {
namespace {

// Together / product that is not worth a word, however small the noise.
constexpr double kWorthNaming = 0.01;

Together JudgeMore(const Pair& pair) {
  const Ratio& a = pair.first.on_average;
  const Ratio& b = pair.second.on_average;
  const bool helps = a.Helps() || b.Helps();
  if (!helps && pair.both.Helps()) return Together::kHelpOnlyTogether;
  if (a.Hurts() && b.Hurts()) return Together::kCostLess;
  if (helps && (a.Hurts() || b.Hurts())) return Together::kMixedMore;
  return helps && pair.both.value > std::max(a.value, b.value)
             ? Together::kHelpEachOther
             : Together::kMore;
}

Together JudgeLess(const Pair& pair) {
  const Ratio& a = pair.first.on_average;
  const Ratio& b = pair.second.on_average;
  const bool hurts = a.Hurts() || b.Hurts();
  if (!hurts && pair.both.Hurts()) return Together::kCostOnlyTogether;
  if (a.Hurts() && b.Hurts()) return Together::kCostMore;
  if (hurts && (a.Helps() || b.Helps())) return Together::kMixedLess;
  return a.Helps() && b.Helps() && pair.both.value <= std::max(a.value, b.value)
             ? Together::kCancel
             : Together::kLess;
}

}  // namespace

Together Judge(const Pair& pair) {
  const Ratio& beyond = pair.beyond_product;
  if (std::abs(beyond.value - 1) < kWorthNaming) return Together::kAsExpected;
  if (beyond.Helps()) return JudgeMore(pair);
  return beyond.Hurts() ? JudgeLess(pair) : Together::kAsExpected;
}

const char* TogetherText(Together together) {
  switch (together) {
    case Together::kAsExpected:
      return "as the product";
    case Together::kHelpOnlyTogether:
      return "help only together";
    case Together::kHelpEachOther:
      return "help each other";
    case Together::kCostLess:
      return "cost less together than the product of their single costs";
    case Together::kMixedMore:
      return "one helps, one costs: together more than the product";
    case Together::kMore:
      return "more than the product";
    case Together::kCostOnlyTogether:
      return "cost only together";
    case Together::kCostMore:
      return "cost more together than the product of their single costs";
    case Together::kMixedLess:
      return "one helps, one costs: together less than the product";
    case Together::kCancel:
      return "cancel: no more than the better one alone";
    case Together::kLess:
      return "less than the product";
  }
  return "";
}

}  // namespace cube
