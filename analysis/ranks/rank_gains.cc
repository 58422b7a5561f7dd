#include "ranks/rank_gains.h"

#include <algorithm>
#include <limits>

#include "steps/steps.h"

namespace stepscope {

std::vector<double> SlacksMs(const std::vector<RankDigest>& ranks,
                             const RankComparison& comparison) {
  std::vector<double> slacks(ranks.size(), 0);
  if (!comparison.why_not.empty() || comparison.rows.empty()) return slacks;
  double least_wait = comparison.rows[0].waiting_ms;
  double least_exposed = comparison.rows[0].exposed_ms;
  for (const RankRow& row : comparison.rows) {
    least_wait = std::min(least_wait, row.waiting_ms);
    least_exposed = std::min(least_exposed, row.exposed_ms);
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto row = std::ranges::find(
        comparison.rows, ranks[r].report.run.rank, &RankRow::rank);
    if (row == comparison.rows.end()) continue;
    slacks[r] = row->waiting_ms - least_wait;
    // Behind a wait, collectives begin too late to hide.
    if (slacks[r] > 0) {
      slacks[r] = std::max(slacks[r], row->exposed_ms - least_exposed);
    }
  }
  return slacks;
}

WonTogether WinTogether(const std::vector<OfRank>& those,
                        const std::vector<double>& slacks, double unseen_ms) {
  WonTogether won;
  won.gain.expected_ms = std::numeric_limits<double>::infinity();
  std::vector<bool> told(slacks.size());
  double most = 0;
  for (const OfRank& one : those) {
    const Gain& gain = one.finding->gain;
    const double slack = slacks[one.index];
    told[one.index] = true;
    most = std::max(most, gain.expected_ms);
    if (gain.expected_ms + slack >= won.gain.expected_ms) continue;
    won.last = &one;
    won.gain = {gain.expected_ms + slack, gain.low_ms, gain.high_ms + slack};
  }
  for (size_t r = 0; r < slacks.size(); ++r) {
    const double least = unseen_ms + slacks[r];
    if (told[r] || least >= won.gain.expected_ms) continue;
    won = {.gain = {least, 0, least}, .last = nullptr};
  }
  won.gain.expected_ms = std::min(won.gain.expected_ms, most);
  won.gain.low_ms = std::min(won.gain.low_ms, won.gain.expected_ms);
  won.gain.high_ms = std::max(won.gain.high_ms, won.gain.expected_ms);
  return won;
}

Gain MiddleGain(const std::vector<OfRank>& those, size_t ranks) {
  std::vector<double> gains;
  Gain gain = those[0].finding->gain;
  for (const OfRank& one : those) {
    gains.push_back(one.finding->gain.expected_ms);
    gain.low_ms = std::min(gain.low_ms, one.finding->gain.low_ms);
    gain.high_ms = std::max(gain.high_ms, one.finding->gain.high_ms);
  }
  gains.resize(ranks);
  gain.expected_ms = Median(gains);
  return gain;
}

}  // namespace stepscope
