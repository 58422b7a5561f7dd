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
    // Binary search, because CompareRanks() sorts the rows.
    const int32_t rank = ranks[r].report.run.rank;
    const auto row =
        std::ranges::lower_bound(comparison.rows, rank, {}, &RankRow::rank);
    if (row == comparison.rows.end() || row->rank != rank) continue;
    slacks[r] = row->waiting_ms - least_wait;
    // A rank that waits may also expose more: its later collectives start too
    // late to be covered.
    if (slacks[r] > 0) {
      slacks[r] = std::max(slacks[r], row->exposed_ms - least_exposed);
    }
  }
  return slacks;
}

JointGain CombineGains(const std::vector<RankFinding>& findings,
                       const std::vector<double>& slacks, double unseen_ms) {
  JointGain joint;
  joint.gain.expected_ms = std::numeric_limits<double>::infinity();
  std::vector<bool> has_finding(slacks.size());
  double most = 0;
  for (const RankFinding& one : findings) {
    const Gain& gain = one.finding->gain;
    const double slack = slacks[one.index];
    has_finding[one.index] = true;
    most = std::max(most, gain.expected_ms);
    if (gain.expected_ms + slack >= joint.gain.expected_ms) continue;
    joint.last = &one;
    joint.gain = {gain.expected_ms + slack, gain.low_ms, gain.high_ms + slack,
                  gain.pairs};
  }
  // A rank without the finding may become the slowest.
  for (size_t r = 0; r < slacks.size(); ++r) {
    const double least = unseen_ms + slacks[r];
    if (has_finding[r] || least >= joint.gain.expected_ms) continue;
    joint = {.gain = {least, 0, least}, .last = nullptr};
  }
  // Slack must not raise the joint gain above the largest single gain.
  joint.gain.expected_ms = std::min(joint.gain.expected_ms, most);
  joint.gain.low_ms = std::min(joint.gain.low_ms, joint.gain.expected_ms);
  joint.gain.high_ms = std::max(joint.gain.high_ms, joint.gain.expected_ms);
  return joint;
}

Gain MedianGain(const std::vector<RankFinding>& findings, size_t ranks) {
  std::vector<double> gains;
  Gain gain = findings[0].finding->gain;
  for (const RankFinding& one : findings) {
    gains.push_back(one.finding->gain.expected_ms);
    gain.low_ms = std::min(gain.low_ms, one.finding->gain.low_ms);
    gain.high_ms = std::max(gain.high_ms, one.finding->gain.high_ms);
  }
  // Ranks without the finding gain nothing.
  gains.resize(ranks);
  gain.expected_ms = Median(gains);
  return gain;
}

}  // namespace stepscope
