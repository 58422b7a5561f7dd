// Merges the reports of all ranks into one: times are means over the ranks, and
// each finding appears once.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/report_of.h"
#include "engine/time_by_place.h"
#include "ranks/rank_comparison.h"
#include "ranks/rank_gains.h"
#include "steps/steps.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// The share of the step below which a single rank would not report a finding.
constexpr double kReportableFrac = 0.01;
// Ranks that replay cannot follow, in the reason that is printed.
constexpr int64_t kInvalidShown = 3;

using Ranks = std::vector<RankDigest>;

// "0, 2, 5, 6, ...", in the order of their numbers.
std::string RankList(const std::vector<RankFinding>& of_ranks) {
  std::vector<int64_t> ranks;
  ranks.reserve(of_ranks.size());
  for (const RankFinding& one : of_ranks) {
    ranks.push_back(one.rank->report.run.rank);
  }
  std::ranges::sort(ranks);
  return FirstOf(ranks);
}

// Turns `finding` into a note without a gain.
void Withdraw(Finding& finding) {
  finding.severity = FindingSeverity::kNote;
  finding.status = FindingStatus::kOk;
  finding.gain_kind = GainKind::kNone;
  finding.gain = Gain();
  finding.speedup = 0;
}

// Returns the finding of one rank, with the gain of the run: that of the rank
// that limits the gain of the run, or else of the rank with the median gain.
Finding MergeOne(std::vector<RankFinding> of_ranks,
                 const std::vector<double>& slacks,
                 const RankComparison& comparison) {
  const size_t ranks = slacks.size();
  std::ranges::stable_sort(of_ranks, {}, [](const RankFinding& one) {
    return -one.finding->gain.expected_ms;
  });
  const RankFinding* shown = &of_ranks[(of_ranks.size() - 1) / 2];
  const double reportable_ms = kReportableFrac * comparison.step_ms;
  const bool few = 2 * of_ranks.size() <= ranks;
  Gain gain;
  if (shown->finding->gain_kind != GainKind::kNone) {
    if (comparison.why_not.empty()) {
      // If most ranks have the finding, the others may have it just below the
      // threshold, so the threshold counts as their gain.
      const JointGain joint =
          CombineGains(of_ranks, slacks, few ? 0 : reportable_ms);
      if (joint.last != nullptr) shown = joint.last;
      gain = joint.gain;
    } else {
      gain = MedianGain(of_ranks, ranks);
    }
  }
  Finding merged = *shown->finding;
  for (const RankFinding& one : of_ranks) {
    merged.status = std::max(merged.status, one.finding->status);
  }
  const std::string name = std::to_string(shown->rank->report.run.rank);
  merged.evidence +=
      of_ranks.size() == ranks
          ? " Found on " +
                (ranks == 2 ? "both" : "all " + std::to_string(ranks)) +
                " ranks; the figures are those of rank " + name + "."
          : " Found on " + std::to_string(of_ranks.size()) + " of " +
                std::to_string(ranks) + " ranks (" + RankList(of_ranks) + ").";
  if (merged.gain_kind == GainKind::kNone) return merged;
  merged.gain = gain;
  // The run would not get faster, because other ranks set its pace.
  if (few && gain.expected_ms < reportable_ms) Withdraw(merged);
  if (merged.speedup > 0 && gain.expected_ms < comparison.step_ms) {
    merged.speedup =
        comparison.step_ms / (comparison.step_ms - gain.expected_ms);
  }
  return merged;
}

void MergeFindings(const Ranks& ranks, const std::vector<double>& slacks,
                   const RankComparison& comparison, Report& run) {
  std::map<std::string, std::vector<RankFinding>> by_id;
  std::vector<std::string> order;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankDigest& rank = ranks[r];
    std::set<std::string> seen;
    for (const Finding& finding : rank.report.findings) {
      // A rule may have several findings; the first one is the largest.
      if (!seen.insert(finding.id).second) continue;
      std::vector<RankFinding>& of_ranks = by_id[finding.id];
      if (of_ranks.empty()) order.push_back(finding.id);
      of_ranks.push_back({r, &rank, &finding});
    }
  }
  for (const std::string& id : order) {
    run.findings.push_back(MergeOne(by_id[id], slacks, comparison));
  }
  std::set<std::string> clean;
  std::map<std::string, const SkippedRule*> skipped;
  for (const RankDigest& rank : ranks) {
    clean.insert(rank.report.clean.begin(), rank.report.clean.end());
    for (const CauseAnswer& answer : rank.report.coverage) {
      clean.insert(answer.looked.begin(), answer.looked.end());
    }
    for (const SkippedRule& entry : rank.report.skipped) {
      skipped.emplace(entry.id, &entry);
    }
  }
  for (const std::string& id : clean) {
    if (!by_id.contains(id)) run.clean.push_back(id);
  }
  for (const auto& [id, entry] : skipped) {
    if (!by_id.contains(id) && !clean.contains(id)) {
      run.skipped.push_back(*entry);
    }
  }
}

// Sets the times of the run to the means over the ranks. The run has only the
// steps that all ranks have.
void MergeTimes(const Ranks& ranks, Report& run) {
  const double share = 1.0 / static_cast<double>(ranks.size());
  std::vector<double> medians;
  run.steps = ranks[0].report.steps;
  run.steps.mean_ms = run.steps.cov = run.steps.unprofiled_ms = 0;
  run.steps.smallest_gain_ms = 0;
  bool is_known = false;  // the recording cost of at least one rank is known
  double unprofiled_ms = 0;
  for (const RankDigest& rank : ranks) {
    const Report& report = rank.report;
    run.has_gpu |= report.has_gpu;
    run.devices_used += report.devices_used;
    run.steps.count = std::min(run.steps.count, report.steps.count);
    run.steps.steady = std::min(run.steps.steady, report.steps.steady);
    run.steps.mean_ms += share * report.steps.mean_ms;
    is_known |= report.steps.unprofiled_ms > 0;
    unprofiled_ms +=
        share * (report.steps.unprofiled_ms > 0 ? report.steps.unprofiled_ms
                                                : report.steps.mean_ms);
    run.steps.cov += share * report.steps.cov;
    run.steps.smallest_gain_ms += share * report.steps.smallest_gain_ms;
    medians.push_back(report.steps.median_ms);
    for (const auto& [cause, ms] : report.time_split_ms) {
      run.time_split_ms[cause] += share * ms;
    }
    for (const auto& [cause, ms] : report.path_split_ms) {
      run.path_split_ms[cause] += share * ms;
    }
    for (const auto& [phase, ms] : report.phases_ms) {
      run.phases_ms[phase] += share * ms;
    }
  }
  if (is_known) run.steps.unprofiled_ms = unprofiled_ms;
  run.steps.median_ms = Median(medians);
  std::map<std::pair<std::string, bool>, TopOp> ops;
  for (const RankDigest& rank : ranks) {
    for (const TopOp& op : rank.report.top_ops) {
      TopOp& sum = ops[{op.name, op.other_thread}];
      sum.name = op.name;
      sum.other_thread = op.other_thread;
      sum.is_collective = op.is_collective;
      sum.self_ms_per_step += share * op.self_ms_per_step;
      sum.total_ms_per_step += share * op.total_ms_per_step;
      sum.gpu_self_ms_per_step += share * op.gpu_self_ms_per_step;
      sum.calls_per_step += share * op.calls_per_step;
    }
  }
  for (const auto& [key, op] : ops) run.top_ops.push_back(op);
  SortOps(run.top_ops, run.has_gpu);
  if (run.top_ops.size() > kTopOps) run.top_ops.resize(kTopOps);
  MergePlaces(ranks, run);
}

// Merges the steps that all ranks have. A step counts as steady only if it is
// steady on all of them.
void MergeSteps(const Ranks& ranks, Report& run) {
  const double share = 1.0 / static_cast<double>(ranks.size());
  std::map<int64_t, StepTimes> steps;
  std::map<int64_t, std::set<const RankDigest*>> seen;
  for (const RankDigest& rank : ranks) {
    for (const StepTimes& one : rank.report.step_times) {
      StepTimes& sum = steps[one.number];
      if (seen[one.number].empty() || sum.kind == "steady") {
        sum.kind = one.kind;
      }
      if (!seen[one.number].insert(&rank).second) continue;  // numbered twice
      sum.number = one.number;
      sum.ms += share * one.ms;
      for (const auto& [cause, ms] : one.time_split_ms) {
        sum.time_split_ms[cause] += share * ms;
      }
    }
  }
  int64_t steady = 0;
  for (auto& [number, step] : steps) {
    if (seen[number].size() != ranks.size()) continue;
    steady += step.kind == "steady";
    run.step_times.push_back(std::move(step));
  }
  if (static_cast<int64_t>(run.step_times.size()) == run.steps.count) {
    run.steps.steady = steady;
  }
}

// Merges losses of the same name: counts add up, and the worst severity stays.
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

// The plan of the run is the plan of the rank that is slowest after following
// its own plan, because that rank sets the pace. Its slack is subtracted from
// its step, because it no longer waits for others.
void MergePlans(const Ranks& ranks, const std::vector<double>& slacks,
                Report& run) {
  const RankDigest* slowest = nullptr;
  double longest = 0, slack = 0;
  int64_t invalid = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankDigest& rank = ranks[r];
    const int64_t replayed = rank.report.replay.steps;
    run.replay.steps = r == 0 ? replayed : std::min(run.replay.steps, replayed);
    run.replay.no_edit_error = std::abs(rank.report.replay.no_edit_error) >
                                       std::abs(run.replay.no_edit_error)
                                   ? rank.report.replay.no_edit_error
                                   : run.replay.no_edit_error;
    run.replay.limit_error = std::abs(rank.report.replay.limit_error) >
                                     std::abs(run.replay.limit_error)
                                 ? rank.report.replay.limit_error
                                 : run.replay.limit_error;
    if (!rank.report.replay.valid && ++invalid <= kInvalidShown) {
      run.replay.why_not += (invalid > 1 ? "; " : "") + std::string("rank ") +
                            std::to_string(rank.report.run.rank) + ": " +
                            rank.report.replay.why_not;
    }
    const double after =
        (rank.report.plan.ids.empty() ? rank.report.steps.mean_ms
                                      : rank.report.plan.step_after_ms) -
        slacks[r];
    if (slowest != nullptr && after <= longest) continue;
    slowest = &rank;
    longest = after;
    slack = slacks[r];
  }
  if (invalid > kInvalidShown) {
    run.replay.why_not +=
        "; and " + Count(invalid - kInvalidShown, "more rank", "more ranks");
  }
  run.replay.valid = run.replay.why_not.empty();
  if (slowest == nullptr || !run.replay.valid) return;
  run.plan = slowest->report.plan;
  if (run.plan.ids.empty()) return;
  for (double* ms :
       {&run.plan.step_after_ms, &run.plan.low_ms, &run.plan.high_ms}) {
    *ms = std::max(*ms - slack, 0.0);
  }
  for (double& ms : run.plan.after_each_ms) ms = std::max(ms - slack, 0.0);
  for (const std::string& id : run.plan.ids) {
    const auto finding = std::ranges::find(run.findings, id, &Finding::id);
    if (finding == run.findings.end() || IsNote(*finding)) {
      run.plan = Plan();
      return;
    }
  }
}

}  // namespace

Report MergeReports(const std::vector<RankDigest>& ranks,
                    const RankComparison& comparison) {
  const std::vector<double> slacks = SlacksMs(ranks, comparison);
  Report run;
  run.ranks = comparison;
  run.run = ranks[0].report.run;
  run.run.rank = -1;
  // The run is named by its folder.
  const size_t slash = run.run.source.rfind('/');
  if (slash != std::string::npos) run.run.source.resize(slash);
  MergeTimes(ranks, run);
  MergeSteps(ranks, run);
  MergeFindings(ranks, slacks, comparison, run);
  MergeLosses(ranks, run);
  MergePlans(ranks, slacks, run);
  for (const RankDigest& rank : ranks) {
    for (const std::string& superseded : rank.report.superseded) {
      if (std::ranges::count(run.superseded, superseded) == 0)
        run.superseded.push_back(superseded);
    }
  }
  return run;
}

}  // namespace stepscope
