#include "engine/ranking.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "context/noise.h"
#include "engine/yielding.h"
#include "words/labels.h"

namespace stepscope {
namespace {

// Shares of the step. Each severity starts at about three times the one below;
// 3 % is the lowest share that XProf calls moderate.
constexpr double kLow = 0.01, kMedium = 0.03, kHigh = 0.10, kCritical = 0.25;
// With fewer steady steps, confidence is one level lower.
constexpr size_t kStepsToBeSure = 3;

// Recorded / unrecorded step where torch.profiler records few events: 0.97 to
// 1.21 on the programs of tests/advice/programs in which nothing is wrong.
constexpr double kHiddenSlowing = 1.2;

// So many times the gain of a specific change is much more. Our own choice.
constexpr double kMuchMore = 4;

enum class Overlap : uint8_t {
  kAlways,     // both findings have the same cause
  kSameIdle,   // both explain the same idle time: only the difference is left
  kOneChange,  // only if too little is left after the owner's change
};
// `id` is dropped where `by` owns its time.
struct Superseding {
  std::string_view id, by;
  Overlap overlap = Overlap::kAlways;
  bool on_cpu_only = false;
};
constexpr Superseding kSuperseding[] = {
    {"loader-bound", "sync-data-loading"},
    {"exposed-collective", "dataparallel"},
    {"exposed-collective", "fsdp-exposed"},
    {"ddp-bucket-shape", "dataparallel"},
    {"ddp-extra-copies", "dataparallel"},
    {"ddp-unused-search", "dataparallel"},
    {"missing-no-sync", "dataparallel"},
    {"launch-bound", "debug-api-on"},
    {"launch-bound", "host-sync", Overlap::kSameIdle},
    {"launch-bound", "explicit-sync", Overlap::kSameIdle},
    {"launch-bound", "grad-clip-sync", Overlap::kSameIdle},
    // Both spread or remove the same framework code.
    {"small-batch", "launch-bound", Overlap::kSameIdle, true},
    // What waits behind the read is the optimizer's launches.
    {"grad-clip-sync", "unfused-optimizer", Overlap::kOneChange},
    {"h2d-blocking", "h2d-pageable", Overlap::kOneChange},
    {"host-sync", "d2h-pageable", Overlap::kOneChange}};

// The step that the gain refers to.
double StepMs(const AnalysisContext& context, const Finding& finding) {
  return finding.baseline_ms > 0 ? finding.baseline_ms : context.gain_step_ms();
}

// By the gain that is likely: a bound counts half, and a hint is never more
// than medium.
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

// True if too little is left for `other` after the change of `owner`: by replay
// where both can be replayed, else by the difference of the gains.
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
    left_ms /= 2;  // a bound counts half, as for severities
  }
  return left_ms < MinReportableGainMs(context);
}

// A hint that stands behind ordinary findings: a larger batch changes what is
// learned, and a step that cannot be captured as it is has to change first.
bool ComesLater(const SizedFinding& sized) {
  return sized.finding.confidence == Confidence::kHint &&
         (sized.finding.id == "small-batch" ||
          (sized.finding.id == "launch-bound" && sized.edits.empty()));
}

// The order among findings with a severity, whatever they gain. 0: ordinary
// ones. 1: those that are at most low, and those that come later. 2: hints that
// are at most low. 3: questions, which rest on nothing that was recorded.
int TierOf(const SizedFinding& sized) {
  if (sized.asks) return 3;
  if (sized.at_most > FindingSeverity::kLow) return ComesLater(sized) ? 1 : 0;
  return sized.finding.confidence == Confidence::kHint ? 2 : 1;
}

// General advice whose gain is what a specific change leaves stands behind that
// change, unless it gains much more.
void PutBehindOwners(std::vector<SizedFinding>& found) {
  // From the last on, so that what moves has been looked at.
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

// A recorder that does not measure its cost also slows what no event shows,
// such as ops that find its buffers in the cache in place of their data.
// Without it the rest of the step may be shorter, and what a change removes a
// larger part of the step. Only the limit that is printed needs that: what is
// likely does not change, nor do order and severity.
void WidenBound(const AnalysisContext& context, Finding& finding) {
  const double step_ms = context.gain_step_ms();
  const double bound_ms = finding.gain.high_ms;
  if (context.has_gpu || !context.recorder.estimated ||
      finding.gain_kind != GainKind::kBound || finding.baseline_ms > 0 ||
      bound_ms >= step_ms) {
    return;
  }
  const double rest_ms = (step_ms - bound_ms) / kHiddenSlowing;
  finding.gain.expected_ms = finding.gain.high_ms =
      step_ms * bound_ms / (bound_ms + rest_ms);
}

}  // namespace

// A smaller gain that is sure comes before a larger one that is a guess.
double RankWeight(const Finding& finding) {
  constexpr double kByConfidence[] = {0.4, 0.8, 1.0};
  return LikelyMs(finding) *
         kByConfidence[static_cast<size_t>(finding.confidence)];
}

FindingSeverity SeverityOfShare(double share) {
  return share >= kCritical ? FindingSeverity::kCritical
         : share >= kHigh   ? FindingSeverity::kHigh
         : share >= kMedium ? FindingSeverity::kMedium
         : share >= kLow    ? FindingSeverity::kLow
                            : FindingSeverity::kNote;
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

// In this order: general advice gives way to specific, severities follow from
// the gains that are left, then whole findings are dropped, then sorted.
void Rank(const AnalysisContext& context, std::vector<SizedFinding>& found,
          std::vector<std::string>& superseded) {
  Yield(context, found, superseded);
  const bool incomplete =
      std::ranges::any_of(found, ShowsDamage, &SizedFinding::finding);
  for (SizedFinding& entry : found) {
    Finding& finding = entry.finding;
    if (IsAboutRecording(finding.id)) continue;
    // Rows are missing, so a gain computed from the others proves nothing.
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
    // Times that other programs have stretched prove nothing about this one.
    if (context.contention.by_others && finding.id != "contended-cores") {
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
    // A copy: erase_if() moves the elements.
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
  std::ranges::stable_sort(
      found, [](const SizedFinding& a, const SizedFinding& b) {
        const int group = RankGroup(a.finding);
        if (group != RankGroup(b.finding)) return group < RankGroup(b.finding);
        if (group == 0) return false;
        if (TierOf(a) != TierOf(b)) return TierOf(a) < TierOf(b);
        return RankWeight(a.finding) > RankWeight(b.finding);
      });
  PutBehindOwners(found);
  for (SizedFinding& one : found) WidenBound(context, one.finding);
}

}  // namespace stepscope
