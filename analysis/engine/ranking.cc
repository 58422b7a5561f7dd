#include "engine/ranking.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "context/noise.h"

namespace stepscope {
namespace {

// Each step of severity is about three times the one before; 3 % is the lowest
// bound that XProf calls moderate.
constexpr double kLow = 0.01, kMedium = 0.03, kHigh = 0.10, kCritical = 0.25;
constexpr size_t kStepsToBeSure = 3;

enum class Muting : uint8_t {
  kAlways,    // the two speak of the same cause
  kSameIdle,  // they explain the same idle time: what is left is the difference
  kOneChange,  // only if the owner's change leaves too little for the other
};
struct Mute {
  std::string_view id, by;
  Muting when = Muting::kAlways;
};
constexpr Mute kMutes[] = {
    {"loader-bound", "sync-data-loading"},
    {"exposed-collective", "dataparallel"},
    {"ddp-bucket-shape", "dataparallel"},
    {"ddp-extra-copies", "dataparallel"},
    {"ddp-unused-search", "dataparallel"},
    {"missing-no-sync", "dataparallel"},
    {"tf32-off", "tensor-cores-idle"},
    {"launch-bound", "debug-api-on"},
    {"launch-bound", "host-sync", Muting::kSameIdle},
    {"launch-bound", "explicit-sync", Muting::kSameIdle},
    {"launch-bound", "grad-clip-sync", Muting::kSameIdle},
    {"h2d-blocking", "h2d-pageable", Muting::kOneChange}};

bool IsTrust(const Finding& finding) {
  return finding.id == "capture-incomplete" ||
         finding.id == "observer-effect" || finding.id == "warmup-in-window";
}

// The step that the gain is of.
double StepMs(const AnalysisContext& context, const Finding& finding) {
  return finding.baseline_ms > 0 ? finding.baseline_ms : context.stats.mean_ms;
}

FindingSeverity SeverityOf(const AnalysisContext& context,
                           const Finding& finding) {
  if (finding.gain_kind == GainKind::kNone) return FindingSeverity::kNote;
  double ms = finding.gain.expected_ms;
  if (finding.gain_kind == GainKind::kBound) ms /= 2;
  if (ms < MinReportableGainMs(context)) return FindingSeverity::kNote;
  const double share = ms / std::max(StepMs(context, finding), 1e-9);
  FindingSeverity severity = share >= kCritical ? FindingSeverity::kCritical
                             : share >= kHigh   ? FindingSeverity::kHigh
                             : share >= kMedium ? FindingSeverity::kMedium
                             : share >= kLow    ? FindingSeverity::kLow
                                                : FindingSeverity::kNote;
  if (finding.confidence == Confidence::kHint) {
    severity = std::min(severity, FindingSeverity::kMedium);
  }
  return severity;
}

double Weight(const Finding& finding) {
  constexpr double kByConfidence[] = {0.4, 0.8, 1.0};
  double ms = finding.gain.expected_ms;
  if (finding.gain_kind == GainKind::kBound) ms /= 2;
  return ms * kByConfidence[static_cast<size_t>(finding.confidence)];
}

// True if `owner` leaves too little for `other` to be worth telling.
bool OwnsTime(const AnalysisContext& context, const SizedFinding& owner,
              const SizedFinding& other, Muting how) {
  if (owner.finding.severity == FindingSeverity::kNote ||
      other.finding.gain_kind == GainKind::kNone) {
    return false;
  }
  double left_ms =
      other.finding.gain.expected_ms - owner.finding.gain.expected_ms;
  if (how == Muting::kOneChange && context.replay.check().valid &&
      !owner.edits.empty() && !other.edits.empty()) {
    const Edit both = Combine(owner.edits[0], other.edits[0]);
    left_ms =
        (context.replay.StepNs(owner.edits[0]) - context.replay.StepNs(both)) *
        1e-6;
  } else if (other.finding.gain_kind == GainKind::kBound) {
    left_ms /= 2;  // as everywhere, a bound counts half
  }
  return left_ms < MinReportableGainMs(context);
}

}  // namespace

void Rank(const AnalysisContext& context, std::vector<SizedFinding>& found,
          std::vector<std::string>& superseded) {
  const bool untrusted = std::ranges::any_of(found, [](const SizedFinding& f) {
    return f.finding.id == "capture-incomplete" &&
           f.finding.status == FindingStatus::kError;
  });
  for (SizedFinding& entry : found) {
    Finding& finding = entry.finding;
    if (IsTrust(finding)) continue;
    if (untrusted) {
      finding.gain_kind = GainKind::kNone;
      finding.gain = Gain();
      finding.speedup = 0;
    }
    if (context.steps.steady.size() < kStepsToBeSure &&
        finding.confidence != Confidence::kHint) {
      finding.confidence =
          static_cast<Confidence>(static_cast<int>(finding.confidence) - 1);
    }
    for (double* ms : {&finding.gain.low_ms, &finding.gain.expected_ms,
                       &finding.gain.high_ms}) {
      *ms = std::min(*ms, StepMs(context, finding));  // none takes less than 0
    }
    finding.severity = SeverityOf(context, finding);
    if (finding.severity == FindingSeverity::kNote && !entry.regardless) {
      finding.status = FindingStatus::kOk;
    }
  }
  for (const Mute& mute : kMutes) {
    const auto owner = std::ranges::find_if(
        found, [&](const SizedFinding& f) { return f.finding.id == mute.by; });
    if (owner == found.end()) continue;
    const SizedFinding kept = *owner;
    if (std::erase_if(found, [&](const SizedFinding& f) {
          return f.finding.id == mute.id &&
                 (mute.when == Muting::kAlways ||
                  OwnsTime(context, kept, f, mute.when));
        }) > 0) {
      superseded.push_back(std::string(mute.id) + " (by " +
                           std::string(mute.by) + ")");
    }
  }
  const auto group = [](const Finding& finding) {
    if (IsTrust(finding)) return 0;
    if (finding.severity != FindingSeverity::kNote) return 1;
    return finding.status == FindingStatus::kOk ? 3 : 2;
  };
  std::ranges::stable_sort(
      found, [&](const SizedFinding& a, const SizedFinding& b) {
        if (group(a.finding) != group(b.finding)) {
          return group(a.finding) < group(b.finding);
        }
        return group(a.finding) != 0 && Weight(a.finding) > Weight(b.finding);
      });
}

}  // namespace stepscope
