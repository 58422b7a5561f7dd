#include <stepscope/ranks.h>

#include <algorithm>
#include <exception>
#include <string>

#include "context/rule.h"
#include "engine/rule_families.h"
#include "engine/sizing.h"
#include "ranks/rank_comparison.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// The share of the step from which exposed-collective fires.
constexpr double kExposedFrac = 0.03;
// A wait of the host counts as a wait for other ranks if the device runs only
// collectives for at least this share of it.
constexpr double kWaitForRanksFrac = 0.8;

// Severity by the share of the step, as for the findings of one rank; a bound
// counts half.
FindingSeverity SeverityOf(const Report& run, const Finding& finding) {
  double ms = finding.gain.expected_ms;
  if (finding.gain_kind == GainKind::kNone) return FindingSeverity::kNote;
  if (finding.gain_kind == GainKind::kBound) ms /= 2;
  const double share = ms / std::max(run.steps.mean_ms, 1e-9);
  return share >= 0.25   ? FindingSeverity::kCritical
         : share >= 0.10 ? FindingSeverity::kHigh
         : share >= 0.03 ? FindingSeverity::kMedium
         : share >= 0.01 ? FindingSeverity::kLow
                         : FindingSeverity::kNote;
}

bool IsAboutRecording(const Finding& finding) {
  return finding.id == "capture-incomplete" ||
         finding.id == "observer-effect" || finding.id == "warmup-in-window";
}

double Weight(const Finding& finding) {
  constexpr double kByConfidence[] = {0.4, 0.8, 1.0};
  double ms = finding.gain.expected_ms;
  if (finding.gain_kind == GainKind::kBound) ms /= 2;
  return ms * kByConfidence[static_cast<size_t>(finding.confidence)];
}

void RunRankRule(const Rule& rule, Report& run) {
  std::string why = run.ranks.why_not;
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
  std::erase(run.clean, rule.id);
  std::erase_if(run.skipped,
                [&](const SkippedRule& entry) { return entry.id == rule.id; });
  if (!why.empty()) {
    run.skipped.push_back({rule.id, why});
    return;
  }
  if (verdict.found.empty()) run.clean.push_back(rule.id);
  for (Found& found : verdict.found) {
    Finding finding = SizeByBound(std::move(found)).finding;
    finding.id = rule.id;
    finding.reference = rule.reference;
    finding.severity = SeverityOf(run, finding);
    if (finding.severity == FindingSeverity::kNote) {
      finding.status = FindingStatus::kOk;
    }
    run.findings.push_back(std::move(finding));
  }
}

// A host that waits while its device runs only collectives waits for late
// ranks. Where a finding about late ranks exists, it owns that time.
void DropWaitsForRanks(Report& run) {
  const auto owner = std::ranges::find_if(run.findings, [](const Finding& f) {
    return f.id == "straggler-rank" || f.id == "imbalanced-load";
  });
  if (owner == run.findings.end()) return;
  const std::string by = " (by " + owner->id + ")";
  std::erase_if(run.findings, [&](const Finding& finding) {
    if (finding.collectives_frac < kWaitForRanksFrac) return false;
    run.superseded.push_back(finding.id + by);
    return true;
  });
}

// The traces of all ranks separate waiting for the last rank from moving data.
// exposed-collective keeps only the moving part.
void SplitExposedTime(Report& run) {
  const auto exposed =
      std::ranges::find(run.findings, "exposed-collective", &Finding::id);
  if (exposed == run.findings.end() || !run.ranks.why_not.empty()) return;
  double all = 0;
  for (const RankRow& row : run.ranks.rows) all += row.exposed_ms;
  all /= run.ranks.rows.size();
  const double moving = std::max(0.0, all - run.ranks.waiting_ms);
  const auto owner = std::ranges::find_if(run.findings, [](const Finding& f) {
    return f.id == "straggler-rank" || f.id == "imbalanced-load";
  });
  if (moving < kExposedFrac * run.ranks.step_ms) {
    if (owner != run.findings.end()) {
      run.superseded.push_back("exposed-collective (by " + owner->id + ")");
    } else {
      run.clean.push_back("exposed-collective");
    }
    run.findings.erase(exposed);
    return;
  }
  exposed->evidence +=
      " Averaged over all ranks, " + Milliseconds(run.ranks.waiting_ms) +
      " of the " + Milliseconds(all) +
      " of exposed communication are spent waiting for the last rank and " +
      Milliseconds(moving) + " moving data.";
  if (exposed->gain.expected_ms > moving) {
    exposed->gain.expected_ms = moving;
    exposed->gain.low_ms = std::min(exposed->gain.low_ms, moving);
    exposed->gain.high_ms = std::min(exposed->gain.high_ms, moving);
    exposed->speedup = 0;
    exposed->severity = std::min(exposed->severity, SeverityOf(run, *exposed));
  }
}

void Sort(Report& run) {
  const auto group = [](const Finding& finding) {
    if (IsAboutRecording(finding)) return 0;
    if (finding.severity != FindingSeverity::kNote) return 1;
    return finding.status != FindingStatus::kOk ? 2 : 3;
  };
  std::ranges::stable_sort(run.findings,
                           [&](const Finding& a, const Finding& b) {
                             if (group(a) != group(b))
                               return group(a) < group(b);
                             return group(a) != 0 && Weight(a) > Weight(b);
                           });
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
    if (IsAboutRecording(finding) || finding.gain_kind == GainKind::kNone)
      continue;
    finding.severity = std::min(finding.severity, SeverityOf(run, finding));
    if (finding.severity == FindingSeverity::kNote) {
      finding.status = FindingStatus::kOk;
    }
  }
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) {
      if (rule.check_ranks != nullptr) RunRankRule(rule, run);
    }
  }
  SplitExposedTime(run);
  DropWaitsForRanks(run);
  Sort(run);
  return run;
}

}  // namespace stepscope
