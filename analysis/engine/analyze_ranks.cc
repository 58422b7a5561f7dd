// AnalyzeRanks(): from the digests of all ranks to one Report of the run. The
// traces are no longer in memory here.
#include <stepscope/ranks.h>

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

#include "context/rule.h"
#include "engine/coverage.h"
#include "engine/plan.h"
#include "engine/ranking.h"
#include "engine/rule_families.h"
#include "engine/sizing.h"
#include "evidence/collectives/transfers.h"
#include "evidence/wait_sites.h"
#include "ranks/rank_comparison.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// exposed-collective fires from this share of the step.
constexpr double kExposedFrac = 0.03;
// A wait of the host counts as a wait for other ranks if the device runs only
// collectives for at least this share of it.
constexpr double kWaitForRanksFrac = 0.8;

constexpr std::string_view kBubbleRule = "pipeline-bubble";

FindingSeverity SeverityOf(const Report& run, const Finding& finding) {
  if (finding.gain_kind == GainKind::kNone) return FindingSeverity::kNote;
  return SeverityOfShare(LikelyMs(finding) / std::max(run.steps.mean_ms, 1e-9));
}

void RunRankRule(const Rule& rule, Report& run) {
  std::string why = rule.needs_shared_collectives || run.ranks.pipelines.empty()
                        ? run.ranks.why_not
                        : "";
  Verdict verdict;
  if (why.empty()) {
    try {
      verdict = rule.check_ranks(run.ranks);
      why = verdict.skipped;
    } catch (const std::exception& error) {
      why = std::string("the rule failed: ") + error.what();
      verdict.found.clear();
    }
  }
  // Each rank's own report lists the rule as skipped, because it needs all
  // ranks.
  std::erase(run.clean, rule.id);
  std::erase_if(run.skipped,
                [&](const SkippedRule& entry) { return entry.id == rule.id; });
  if (!why.empty()) {
    run.skipped.push_back({rule.id, why});
    return;
  }
  if (verdict.found.empty()) run.clean.push_back(rule.id);
  for (Found& found : verdict.found) {
    // The gain is the one from the joint replay of all ranks, or else a bound.
    const Gain joint = found.finding.gain;
    Finding finding = SizeByBound(std::move(found)).finding;
    if (joint.high_ms > 0) {
      finding.gain_kind = GainKind::kPredicted;
      finding.gain = joint;
      if (joint.expected_ms < run.steps.mean_ms) {
        finding.speedup =
            run.steps.mean_ms / (run.steps.mean_ms - joint.expected_ms);
      }
    }
    finding.id = rule.id;
    finding.reference = rule.reference;
    finding.severity = SeverityOf(run, finding);
    if (finding.severity == FindingSeverity::kNote) {
      finding.status = FindingStatus::kOk;
    }
    run.findings.push_back(std::move(finding));
  }
}

// Drops findings about host waits that are really waits for late ranks: the
// device runs only collectives meanwhile. If there is a finding about late
// ranks, that time counts for it.
void DropWaitsForRanks(Report& run) {
  const auto owner = std::ranges::find_if(run.findings, [](const Finding& f) {
    return f.id == "straggler-rank" || f.id == "imbalanced-load";
  });
  if (owner == run.findings.end()) return;
  const std::string id = owner->id;
  std::vector<std::string> muted;
  std::erase_if(run.findings, [&](const Finding& finding) {
    if (finding.collectives_frac < kWaitForRanksFrac) return false;
    run.superseded.push_back(SupersededBy(finding.id, id));
    muted.push_back(AlsoInWords(finding));
    return true;
  });
  Finding& kept = *std::ranges::find(run.findings, id, &Finding::id);
  kept.also.insert(kept.also.end(), muted.begin(), muted.end());
}

// The time that the stages of pipelines wait for each other, mean over all
// ranks.
double BubbleMs(const RankComparison& ranks) {
  double ms = 0;
  for (const PipelineRow& pipeline : ranks.pipelines) {
    for (const PipelineStage& stage : pipeline.stages) ms += stage.waiting_ms;
  }
  return ms / static_cast<double>(ranks.rows.size());
}

// How much of the exposed time is waiting for the last rank or another stage,
// and how much is moving data: in ms per step, means over all ranks.
struct ExposedTime {
  double all = 0, waiting = 0, moving = 0;
};
ExposedTime ExposedTimeOf(const Report& run, bool bubbles) {
  ExposedTime time;
  for (const RankRow& row : run.ranks.rows) time.all += row.exposed_ms;
  time.all /= run.ranks.rows.size();
  time.waiting = run.ranks.waiting_ms;
  if (bubbles) time.waiting += BubbleMs(run.ranks);
  time.moving = std::max(0.0, time.all - time.waiting);
  return time;
}

std::string SplitInWords(const Report& run, const ExposedTime& time,
                         bool bubbles) {
  const std::string waiting =
      " Averaged over all ranks, " + Milliseconds(time.waiting) + " of the " +
      Milliseconds(time.all) +
      " of exposed communication are spent waiting for the last ";
  const std::string stage = bubbles ? " or another stage" : "";
  if (run.ranks.partial > 0) {
    return waiting + "of the compared ranks" + stage +
           "; the rest may be moving data, or waiting for a rank that is not "
           "among them.";
  }
  return waiting + "rank" + stage + " and " + Milliseconds(time.moving) +
         " moving data.";
}

void LimitGain(const Report& run, double most_ms, Finding& finding) {
  if (finding.gain.expected_ms <= most_ms) return;
  finding.gain.expected_ms = most_ms;
  finding.gain.low_ms = std::min(finding.gain.low_ms, most_ms);
  finding.gain.high_ms = std::min(finding.gain.high_ms, most_ms);
  finding.speedup = 0;
  finding.severity = std::min(finding.severity, SeverityOf(run, finding));
}

// The traces of all ranks show how much exposed time is waiting for the last
// rank and how much is moving data. Leaves only the latter in the finding
// exposed-collective or fsdp-exposed.
void SplitExposedTime(Report& run) {
  const auto exposed = std::ranges::find_if(run.findings, [](const Finding& f) {
    return f.id == "exposed-collective" || f.id == "fsdp-exposed";
  });
  const bool bubbles =
      std::ranges::count(run.findings, kBubbleRule, &Finding::id) > 0;
  if (exposed == run.findings.end() ||
      (!run.ranks.why_not.empty() && !bubbles)) {
    return;
  }
  const ExposedTime time = ExposedTimeOf(run, bubbles);
  const auto owner = std::ranges::find_if(run.findings, [](const Finding& f) {
    return f.id == "straggler-rank" || f.id == "imbalanced-load" ||
           f.id == kBubbleRule;
  });
  if (time.moving < kExposedFrac * run.ranks.step_ms) {
    if (owner != run.findings.end()) {
      run.superseded.push_back(SupersededBy(exposed->id, owner->id));
      owner->also.push_back(AlsoInWords(*exposed));
    } else {
      run.clean.push_back(exposed->id);
    }
    run.findings.erase(exposed);
    return;
  }
  exposed->evidence += SplitInWords(run, time, bubbles);
  LimitGain(run, time.moving, *exposed);
}

// Other buckets, issued earlier, do not make a late rank arrive earlier. But
// they also save the host's time of many calls, which is no exposed time: so
// at most the waiting is taken from the gain.
void KeepWaitOutOfBuckets(Report& run) {
  const auto buckets =
      std::ranges::find(run.findings, "ddp-bucket-shape", &Finding::id);
  if (buckets == run.findings.end() || !run.ranks.why_not.empty()) return;
  const ExposedTime time = ExposedTimeOf(run, false);
  const double most_ms =
      std::max(time.moving, buckets->gain.expected_ms - time.waiting);
  if (buckets->gain.expected_ms <= most_ms) return;
  buckets->evidence += SplitInWords(run, time, false);
  LimitGain(run, most_ms, *buckets);
}

void Erase(std::string_view part, std::string& text) {
  const size_t at = text.find(part);
  if (at != std::string::npos) text.erase(at, part.size());
}

// One rank's report asks for the traces of the others. Here they are compared.
void AnswerQuestions(Report& run) {
  if (!run.ranks.why_not.empty()) return;
  const bool are_late =
      run.ranks.waiting_ms >= kExposedFrac * run.ranks.step_ms;
  for (Finding& finding : run.findings) {
    Erase(kRestIsUnknown, finding.evidence);
    if (!are_late) Erase(kMayBeRanks, finding.evidence);
  }
}

void Sort(Report& run) {
  const auto before = [](const Finding& a, const Finding& b) {
    const int group = RankGroup(a);
    if (group != RankGroup(b)) return group < RankGroup(b);
    return group != 0 && IsMoreUrgent(a, b);
  };
  std::ranges::stable_sort(run.findings, before);
  std::ranges::sort(run.clean);
  std::ranges::sort(run.skipped, {}, &SkippedRule::id);
}

}  // namespace

Report AnalyzeRanks(const std::vector<RankDigest>& ranks) {
  Report run;
  if (ranks.empty()) return run;
  run = MergeReports(ranks, CompareRanks(ranks));
  // The gain of the run may be much smaller than that of a single rank.
  for (Finding& finding : run.findings) {
    if (IsAboutRecording(finding.id) || finding.gain_kind == GainKind::kNone)
      continue;
    finding.severity = std::min(finding.severity, SeverityOf(run, finding));
    if (finding.severity == FindingSeverity::kNote) {
      finding.status = FindingStatus::kOk;
    }
  }
  // Rules about all ranks run on the comparison of the ranks' reports.
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) {
      if (rule.check_ranks != nullptr) RunRankRule(rule, run);
    }
  }
  SplitExposedTime(run);
  KeepWaitOutOfBuckets(run);
  DropWaitsForRanks(run);
  AnswerQuestions(run);
  Sort(run);
  ExplainCauses(run);
  OrderPlan(run);
  return run;
}

}  // namespace stepscope
