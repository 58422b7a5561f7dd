// The reports of all ranks as one: times are means over the ranks, findings are
// those of the ranks, each told once.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "ranks.h"
#include "report/labels.h"
#include "report/words.h"
#include "steps.h"

namespace stepscope {
namespace {

constexpr size_t kTopOps = 50;

using Ranks = std::vector<RankDigest>;

struct OfRank {
  const RankDigest* rank;
  const Finding* finding;
};

std::string RankList(const std::vector<OfRank>& those) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(those.size(), 4); ++i) {
    text +=
        (i > 0 ? ", " : "") + std::to_string(those[i].rank->report.run.rank);
  }
  return text + (those.size() > 4 ? ", ..." : "");
}

// The finding of the rank in the middle, its gain that of the middle rank of
// all: in step with each other, ranks win only what they win together.
Finding MergeOne(std::vector<OfRank> those, size_t ranks) {
  std::ranges::stable_sort(those, {}, [](const OfRank& one) {
    return -one.finding->gain.expected_ms;
  });
  const OfRank& middle = those[(those.size() - 1) / 2];
  Finding merged = *middle.finding;
  for (const OfRank& one : those) {
    merged.status = std::max(merged.status, one.finding->status);
  }
  if (those.size() == ranks) {
    merged.evidence += " On all " + std::to_string(ranks) +
                       " ranks; these are " + "the figures of rank " +
                       std::to_string(middle.rank->report.run.rank) + ".";
  } else {
    merged.evidence += " On " + std::to_string(those.size()) + " of " +
                       std::to_string(ranks) + " ranks (" + RankList(those) +
                       ").";
  }
  if (merged.gain_is == GainKind::kNone) return merged;
  std::vector<double> gains, lows, highs;
  for (const OfRank& one : those) {
    gains.push_back(one.finding->gain.expected_ms);
    lows.push_back(one.finding->gain.low_ms);
    highs.push_back(one.finding->gain.high_ms);
  }
  gains.resize(ranks);
  lows.resize(ranks);
  merged.gain.expected_ms = Median(gains);
  merged.gain.low_ms = *std::ranges::min_element(lows);
  merged.gain.high_ms = *std::ranges::max_element(highs);
  const bool few = 2 * those.size() <= ranks;
  if (few) {
    // The other ranks would not get faster by it.
    merged.severity = FindingSeverity::kNote;
    merged.status = FindingStatus::kOk;
    merged.gain_is = GainKind::kNone;
    merged.gain = Gain();
    merged.speedup = 0;
  }
  return merged;
}

void MergeFindings(const Ranks& ranks, Report& run) {
  std::map<std::string, std::vector<OfRank>> by_id;
  std::vector<std::string> order;
  for (const RankDigest& rank : ranks) {
    std::set<std::string> told;
    for (const Finding& finding : rank.report.findings) {
      // A rule may tell several; the first is its largest.
      if (!told.insert(finding.id).second) continue;
      std::vector<OfRank>& those = by_id[finding.id];
      if (those.empty()) order.push_back(finding.id);
      those.push_back({&rank, &finding});
    }
  }
  for (const std::string& id : order) {
    run.findings.push_back(MergeOne(by_id[id], ranks.size()));
  }
  std::set<std::string> clean;
  std::map<std::string, std::string> blind;
  for (const RankDigest& rank : ranks) {
    clean.insert(rank.report.clean.begin(), rank.report.clean.end());
    for (const CouldNotLook& entry : rank.report.could_not_look) {
      blind.emplace(entry.id, entry.why);
    }
  }
  for (const std::string& id : clean) {
    if (!by_id.contains(id)) run.clean.push_back(id);
  }
  for (const auto& [id, why] : blind) {
    if (!by_id.contains(id) && !clean.contains(id)) {
      run.could_not_look.push_back({id, why});
    }
  }
}

void MergeTimes(const Ranks& ranks, Report& run) {
  const double share = 1.0 / static_cast<double>(ranks.size());
  std::vector<double> medians;
  run.steps = ranks[0].report.steps;
  run.steps.mean_ms = run.steps.cov = 0;
  for (const RankDigest& rank : ranks) {
    const Report& report = rank.report;
    run.has_gpu |= report.has_gpu;
    run.steps.count = std::min(run.steps.count, report.steps.count);
    run.steps.steady = std::min(run.steps.steady, report.steps.steady);
    run.steps.mean_ms += share * report.steps.mean_ms;
    run.steps.cov += share * report.steps.cov;
    medians.push_back(report.steps.median_ms);
    for (const auto& [cause, ms] : report.time_split_ms) {
      run.time_split_ms[cause] += share * ms;
    }
    for (const auto& [phase, ms] : report.phases_ms) {
      run.phases_ms[phase] += share * ms;
    }
  }
  run.steps.median_ms = Median(medians);
  std::map<std::string, TopOp> ops;
  for (const RankDigest& rank : ranks) {
    for (const TopOp& op : rank.report.top_ops) {
      TopOp& sum = ops[op.name];
      sum.name = op.name;
      sum.self_ms_per_step += share * op.self_ms_per_step;
      sum.total_ms_per_step += share * op.total_ms_per_step;
      sum.calls_per_step += share * op.calls_per_step;
    }
  }
  for (const auto& [name, op] : ops) run.top_ops.push_back(op);
  std::ranges::stable_sort(run.top_ops, [](const TopOp& a, const TopOp& b) {
    return a.self_ms_per_step > b.self_ms_per_step;
  });
  if (run.top_ops.size() > kTopOps) run.top_ops.resize(kTopOps);
}

void MergeLosses(const Ranks& ranks, Report& run) {
  std::map<std::string, size_t> known;
  for (const RankDigest& rank : ranks) {
    for (Loss loss : rank.report.losses) {
      const auto [entry, added] = known.emplace(loss.name, run.losses.size());
      if (added) {
        loss.detail =
            "rank " + std::to_string(rank.report.run.rank) + ": " + loss.detail;
        run.losses.push_back(std::move(loss));
        continue;
      }
      Loss& first = run.losses[entry->second];
      if (first.count >= 0 && loss.count >= 0) first.count += loss.count;
      first.severity = std::max(first.severity, loss.severity);
    }
  }
}

// The slowest rank after its plan sets the pace of the run.
void MergePlans(const Ranks& ranks, Report& run) {
  const RankDigest* slowest = nullptr;
  for (const RankDigest& rank : ranks) {
    run.replay.no_edit_error = std::abs(rank.report.replay.no_edit_error) >
                                       std::abs(run.replay.no_edit_error)
                                   ? rank.report.replay.no_edit_error
                                   : run.replay.no_edit_error;
    run.replay.limit_error = std::abs(rank.report.replay.limit_error) >
                                     std::abs(run.replay.limit_error)
                                 ? rank.report.replay.limit_error
                                 : run.replay.limit_error;
    if (!rank.report.replay.speaks) {
      run.replay.why_not = "rank " + std::to_string(rank.report.run.rank) +
                           ": " + rank.report.replay.why_not;
    }
    const double after = rank.report.plan.ids.empty()
                             ? rank.report.steps.mean_ms
                             : rank.report.plan.step_after_ms;
    if (slowest == nullptr ||
        after > (slowest->report.plan.ids.empty()
                     ? slowest->report.steps.mean_ms
                     : slowest->report.plan.step_after_ms)) {
      slowest = &rank;
    }
  }
  run.replay.speaks = run.replay.why_not.empty();
  if (slowest == nullptr || !run.replay.speaks) return;
  run.plan = slowest->report.plan;
  for (const std::string& id : run.plan.ids) {
    const auto told = std::ranges::find(run.findings, id, &Finding::id);
    if (told == run.findings.end() || IsNote(*told)) {
      run.plan = Plan();
      return;
    }
  }
}

}  // namespace

Report MergeReports(const std::vector<RankDigest>& ranks) {
  Report run;
  run.run = ranks[0].report.run;
  run.run.rank = -1;
  // The folder stands for the files.
  const size_t slash = run.run.source.rfind('/');
  if (slash != std::string::npos) run.run.source.resize(slash);
  MergeTimes(ranks, run);
  MergeFindings(ranks, run);
  MergeLosses(ranks, run);
  MergePlans(ranks, run);
  for (const RankDigest& rank : ranks) {
    for (const std::string& muted : rank.report.muted) {
      if (std::ranges::count(run.muted, muted) == 0) run.muted.push_back(muted);
    }
  }
  return run;
}

}  // namespace stepscope
