#include "engine/ranking.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "context/noise.h"

namespace stepscope {
namespace {

// Shares of the step. Each severity starts at about three times the one below;
// 3 % is the lowest share that XProf calls moderate.
constexpr double kLow = 0.01, kMedium = 0.03, kHigh = 0.10, kCritical = 0.25;
// With fewer steady steps, confidence is one level lower.
constexpr size_t kStepsToBeSure = 3;

enum class Overlap : uint8_t {
  kAlways,     // both findings have the same cause
  kSameIdle,   // both explain the same idle time: only the difference is left
  kOneChange,  // only if too little is left after the owner's change
};
// `id` is dropped where `by` owns its time.
struct Superseding {
  std::string_view id, by;
  Overlap overlap = Overlap::kAlways;
};
constexpr Superseding kSuperseding[] = {
    {"loader-bound", "sync-data-loading"},
    {"exposed-collective", "dataparallel"},
    {"ddp-bucket-shape", "dataparallel"},
    {"ddp-extra-copies", "dataparallel"},
    {"ddp-unused-search", "dataparallel"},
    {"missing-no-sync", "dataparallel"},
    {"tf32-off", "tensor-cores-idle"},
    {"launch-bound", "debug-api-on"},
    {"launch-bound", "host-sync", Overlap::kSameIdle},
    {"launch-bound", "explicit-sync", Overlap::kSameIdle},
    {"launch-bound", "grad-clip-sync", Overlap::kSameIdle},
    {"h2d-blocking", "h2d-pageable", Overlap::kOneChange}};

bool IsAboutRecording(const Finding& finding) {
  return finding.id == "capture-incomplete" ||
         finding.id == "observer-effect" || finding.id == "warmup-in-window";
}

// The step that the gain refers to.
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

// What findings are sorted by: the gain, weighted by confidence.
double Weight(const Finding& finding) {
  constexpr double kByConfidence[] = {0.4, 0.8, 1.0};
  double ms = finding.gain.expected_ms;
  if (finding.gain_kind == GainKind::kBound) ms /= 2;
  return ms * kByConfidence[static_cast<size_t>(finding.confidence)];
}

// True if too little is left for `other` after the change of `owner`.
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

}  // namespace

void Rank(const AnalysisContext& context, std::vector<SizedFinding>& found,
          std::vector<std::string>& superseded) {
  const bool incomplete = std::ranges::any_of(found, [](const SizedFinding& f) {
    return f.finding.id == "capture-incomplete" &&
           f.finding.status == FindingStatus::kError;
  });
  for (SizedFinding& entry : found) {
    Finding& finding = entry.finding;
    if (IsAboutRecording(finding)) continue;
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
    for (double* ms : {&finding.gain.low_ms, &finding.gain.expected_ms,
                       &finding.gain.high_ms}) {
      *ms =
          std::min(*ms, StepMs(context, finding));  // no step takes less than 0
    }
    finding.severity = SeverityOf(context, finding);
    if (finding.severity == FindingSeverity::kNote && !entry.regardless) {
      finding.status = FindingStatus::kOk;
    }
  }
  for (const Superseding& pair : kSuperseding) {
    const auto owner = std::ranges::find_if(
        found, [&](const SizedFinding& f) { return f.finding.id == pair.by; });
    if (owner == found.end()) continue;
    const SizedFinding kept = *owner;
    if (std::erase_if(found, [&](const SizedFinding& f) {
          return f.finding.id == pair.id &&
                 (pair.overlap == Overlap::kAlways ||
                  OwnsTime(context, kept, f, pair.overlap));
        }) > 0) {
      superseded.push_back(std::string(pair.id) + " (by " +
                           std::string(pair.by) + ")");
    }
  }
  const auto group = [](const Finding& finding) {
    if (IsAboutRecording(finding)) return 0;
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
