#include "engine/ranking.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "context/noise.h"
#include "engine/outcomes.h"
#include "engine/yielding.h"
#include "words/labels.h"

namespace stepscope {
namespace {

// Severities as shares of the step. Each starts at about three times the one
// below; 3 % is the lowest share that XProf calls moderate.
constexpr double kLow = 0.01, kMedium = 0.03, kHigh = 0.10, kCritical = 0.25;
// With fewer steady steps, confidence is one level lower.
constexpr size_t kStepsToBeSure = 3;

// The outcome (outcomes.h) that 95 % of 236 bounds stayed below, by the sum of
// the recorded times: the programs of tests/advice/programs, recorded by
// torch.profiler on 2026-11-29. Of 38 recorded by stepscope, 34 did.
constexpr double kBoundOutcome = 1.4;
// The same for runs with a GPU: of 147 bounds on simulated runs, 136 stayed
// below, and 6 of 9 on an H200 (tests/advice/README.md,
// samples/resnet/RESULTS.md).
constexpr double kBoundOutcomeOnGpu = 1.15;

// General advice gains much more than a specific change from this factor on.
// Our own choice.
constexpr double kMuchMore = 4;

enum class Overlap : uint8_t {
  kAlways,     // both findings have the same cause
  kSameIdle,   // both explain the same idle time: only the difference is left
  kOneChange,  // only if too little is left after the owner's change
};
// A finding `id` is superseded by a finding `by` that explains the same time.
struct Superseding {
  std::string_view id, by;
  Overlap overlap = Overlap::kAlways;
  bool on_cpu_only = false;
};
constexpr Superseding kSuperseding[] = {
    {"loader-bound", "sync-data-loading"},
    {"exposed-collective", "dataparallel"},
    {"exposed-collective", "fsdp-exposed"},
    {"exposed-collective", "frozen-shards"},
    {"ddp-bucket-shape", "dataparallel"},
    {"ddp-extra-copies", "dataparallel"},
    {"ddp-unused-search", "dataparallel"},
    {"missing-no-sync", "dataparallel"},
    {"launch-bound", "debug-api-on"},
    {"launch-bound", "host-sync", Overlap::kSameIdle},
    {"launch-bound", "explicit-sync", Overlap::kSameIdle},
    {"launch-bound", "grad-clip-sync", Overlap::kSameIdle},
    // Both are about the same framework code: a larger batch spreads it over
    // more samples, and compiling removes it.
    {"small-batch", "launch-bound", Overlap::kSameIdle, true},
    // The launches that are delayed by the read are those of the optimizer.
    {"grad-clip-sync", "unfused-optimizer", Overlap::kOneChange},
    {"h2d-blocking", "h2d-pageable", Overlap::kOneChange},
    {"h2d-blocking", "single-uploads", Overlap::kOneChange},
    {"h2d-pageable", "single-uploads", Overlap::kOneChange},
    {"host-sync", "d2h-pageable", Overlap::kOneChange}};

// The step that the gain refers to.
double StepMs(const AnalysisContext& context, const Finding& finding) {
  return finding.baseline_ms > 0 ? finding.baseline_ms : context.gain_step_ms();
}

// The severity follows from the likely gain: for a bound, half of it counts. A
// hint is never more than medium.
FindingSeverity SeverityOf(const AnalysisContext& context,
                           const SizedFinding& sized) {
  const Finding& finding = sized.finding;
  if (finding.gain_kind == GainKind::kNone) return FindingSeverity::kNote;
  const double ms = LikelyMs(finding);
  if (ms < MinReportableGainMs(context) && !sized.beyond_noise) {
    return FindingSeverity::kNote;
  }
  const FindingSeverity severity =
      SeverityOfShare(ms / std::max(StepMs(context, finding), 1e-9));
  return finding.confidence == Confidence::kHint
             ? std::min(severity, FindingSeverity::kMedium)
             : severity;
}

// True if too little gain is left for `other` after the change of `owner`.
// Judged by replay if both can be replayed, else by the difference of the
// gains.
bool OwnsTime(const AnalysisContext& context, const SizedFinding& owner,
              const SizedFinding& other, Overlap overlap) {
  if (owner.finding.severity == FindingSeverity::kNote ||
      other.finding.gain_kind == GainKind::kNone) {
    return false;
  }
  double left_ms =
      other.finding.gain.expected_ms - owner.finding.gain.expected_ms;
  if (overlap == Overlap::kOneChange && context.replay.check().valid &&
      !owner.edits.empty() && !other.edits.empty()) {
    const Edit both = Combine(owner.edits[0], other.edits[0]);
    left_ms =
        (context.replay.StepNs(owner.edits[0]) - context.replay.StepNs(both)) *
        1e-6;
  } else if (other.finding.gain_kind == GainKind::kBound) {
    left_ms /= 2;  // half of a bound counts, as for severities
  }
  return left_ms < MinReportableGainMs(context);
}

// The order among findings with a severity, whatever they gain. -1: debugging
// aids, which stretch everything that other findings measure. 0: ordinary
// ones. 1: those whose severity is limited to low, and those that come later
// (ComesLater). 2: hints whose severity is limited to low. 3: questions, which
// rest on nothing that was recorded.
int TierOf(const SizedFinding& sized) {
  if (sized.asks) return 3;
  if (sized.finding.id == "debug-api-on") return -1;
  if (sized.at_most > FindingSeverity::kLow) return ComesLater(sized) ? 1 : 0;
  return sized.finding.confidence == Confidence::kHint ? 2 : 1;
}

// The likely gain in ms, weighted by confidence, so that a smaller certain gain
// can come before a larger guessed one.
double RankWeight(const Finding& finding) {
  constexpr double kByConfidence[] = {0.4, 0.8, 1.0};
  return LikelyMs(finding) *
         kByConfidence[static_cast<size_t>(finding.confidence)];
}

// Moves general advice behind the specific change whose rest it gains, unless
// the general advice gains much more.
void PutBehindOwners(std::vector<SizedFinding>& found) {
  // Goes backwards, so that the moved elements have already been looked at.
  for (size_t i = found.size(); i-- > 0;) {
    if (found[i].after.empty() || RankGroup(found[i].finding) != 1) continue;
    for (size_t owner = i + 1; owner < found.size(); ++owner) {
      if (found[owner].finding.id != found[i].after) continue;
      if (RankGroup(found[owner].finding) != 1 ||
          TierOf(found[owner]) != TierOf(found[i]) ||
          RankWeight(found[owner].finding) * kMuchMore <
              RankWeight(found[i].finding)) {
        break;
      }
      std::rotate(found.begin() + static_cast<std::ptrdiff_t>(i),
                  found.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                  found.begin() + static_cast<std::ptrdiff_t>(owner) + 1);
      break;
    }
  }
}

void AddAlso(std::string_view owner, std::vector<std::string> muted,
             std::vector<SizedFinding>& found) {
  for (SizedFinding& one : found) {
    if (one.finding.id != owner) continue;
    one.finding.also.insert(one.finding.also.end(), muted.begin(), muted.end());
    return;
  }
}

// Widens a bound from the time of what the change removes to what such changes
// gained at most: ops also cost others time, for example by what they evict
// from the caches or by the launches around them, and so does a recorder. This
// changes only the printed limit, and is done last, so that order and severity
// still follow from the likely gain.
void WidenBound(const AnalysisContext& context, Finding& finding) {
  const double step_ms = context.gain_step_ms();
  if (context.recorder.op_ns <= 0 || finding.gain_kind != GainKind::kBound ||
      finding.baseline_ms > 0 || finding.gain.high_ms >= step_ms) {
    return;
  }
  finding.gain.expected_ms = finding.gain.high_ms =
      GainFor(context.has_gpu ? kBoundOutcomeOnGpu : kBoundOutcome,
              finding.gain.high_ms, step_ms);
}

// Adds what changes by this rule have gained of their bounds at least. Nothing
// was measured on GPUs, and a hint may be completely wrong.
void TellLeast(const AnalysisContext& context, Finding& finding) {
  if (context.has_gpu || finding.gain_kind != GainKind::kBound ||
      finding.confidence == Confidence::kHint) {
    return;
  }
  const Outcomes known = OutcomesOfBound(finding.id);
  if (known.pairs == 0) return;
  finding.gain.low_ms = known.low * finding.gain.expected_ms;
  finding.gain.pairs = static_cast<int64_t>(known.pairs);
}

}  // namespace

bool IsMoreUrgent(const Finding& a, const Finding& b) {
  if (a.severity != b.severity) return a.severity > b.severity;
  return RankWeight(a) > RankWeight(b);
}

FindingSeverity SeverityOfShare(double share) {
  return share >= kCritical ? FindingSeverity::kCritical
         : share >= kHigh   ? FindingSeverity::kHigh
         : share >= kMedium ? FindingSeverity::kMedium
         : share >= kLow    ? FindingSeverity::kLow
                            : FindingSeverity::kNote;
}

bool ComesLater(const SizedFinding& sized) {
  return sized.finding.confidence == Confidence::kHint &&
         (sized.finding.id == "small-batch" ||
          (sized.finding.id == "launch-bound" && sized.edits.empty()));
}

int RankGroup(const Finding& finding) {
  if (IsAboutRecording(finding.id)) return 0;
  if (finding.severity != FindingSeverity::kNote) return 1;
  return finding.status == FindingStatus::kOk ? 3 : 2;
}

bool IsAboutRecording(std::string_view rule) {
  return rule == "capture-incomplete" || rule == "observer-effect" ||
         rule == "warmup-in-window";
}

void SortByRank(std::vector<SizedFinding>& found) {
  std::ranges::stable_sort(found,
                           [](const SizedFinding& a, const SizedFinding& b) {
                             const int group = RankGroup(a.finding);
                             if (group != RankGroup(b.finding))
                               return group < RankGroup(b.finding);
                             if (group == 0) return false;
                             if (TierOf(a) != TierOf(b))
                               return TierOf(a) < TierOf(b);
                             return IsMoreUrgent(a.finding, b.finding);
                           });
  PutBehindOwners(found);
}

// The order matters: first general advice yields to specific advice, then
// severities follow from the remaining gains, then superseded findings are
// dropped, and then the rest is sorted.
void Rank(const AnalysisContext& context, std::vector<SizedFinding>& found,
          std::vector<std::string>& superseded) {
  Yield(context, found, superseded);
  const bool incomplete =
      std::ranges::any_of(found, ShowsDamage, &SizedFinding::finding);
  const bool contended =
      std::ranges::any_of(found, [](const SizedFinding& entry) {
        return entry.finding.id == "contended-cores";
      });
  for (SizedFinding& entry : found) {
    Finding& finding = entry.finding;
    if (IsAboutRecording(finding.id)) continue;
    // Events are missing, so a gain computed from the rest proves nothing.
    if (incomplete) {
      finding.gain_kind = GainKind::kNone;
      finding.gain = Gain();
      finding.speedup = 0;
    }
    if (context.steps.steady.size() < kStepsToBeSure &&
        finding.confidence != Confidence::kHint) {
      finding.confidence =
          static_cast<Confidence>(static_cast<int>(finding.confidence) - 1);
    }
    // Times that other programs have stretched cannot prove anything.
    if (contended && finding.id != "contended-cores") {
      finding.confidence = std::min(finding.confidence, Confidence::kStrong);
    }
    for (double* ms : {&finding.gain.low_ms, &finding.gain.expected_ms,
                       &finding.gain.high_ms}) {
      *ms =
          std::min(*ms, StepMs(context, finding));  // no step takes less than 0
    }
    finding.severity = std::min(SeverityOf(context, entry), entry.at_most);
    if (finding.severity == FindingSeverity::kNote && !entry.regardless) {
      finding.status = FindingStatus::kOk;
    }
  }
  for (const Superseding& pair : kSuperseding) {
    if (pair.on_cpu_only && context.has_gpu) continue;
    const auto owner = std::ranges::find_if(
        found, [&](const SizedFinding& f) { return f.finding.id == pair.by; });
    if (owner == found.end()) continue;
    // Copied, because erase_if() moves the elements.
    const SizedFinding kept = *owner;
    std::vector<std::string> muted;
    if (std::erase_if(found, [&](const SizedFinding& f) {
          const bool owned = f.finding.id == pair.id &&
                             (pair.overlap == Overlap::kAlways ||
                              OwnsTime(context, kept, f, pair.overlap));
          if (owned) muted.push_back(AlsoInWords(f.finding));
          return owned;
        }) > 0) {
      superseded.push_back(SupersededBy(pair.id, pair.by));
      AddAlso(pair.by, std::move(muted), found);
    }
  }
  SortByRank(found);
  for (SizedFinding& one : found) {
    WidenBound(context, one.finding);
    TellLeast(context, one.finding);
  }
}

}  // namespace stepscope
