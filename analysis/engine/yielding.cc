#include "engine/yielding.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "context/noise.h"
#include "edit/edit.h"
#include "words/labels.h"

namespace stepscope {
namespace {

// A pair of findings about the same work, in which `general` says less about it
// than `specific`. `general` yields if `specific` gains more than `least` times
// the gain of `general`; `least` is above 0 if either may be a part of the
// other. It never yields to a finding whose severity is limited to low.
struct Yielding {
  std::string_view general, specific;
  double least = 0;
  // `general` gains part of the same time, but leaves training as it is. So it
  // keeps its gain, and only stands behind.
  bool is_neutral = false;
};
// As `specific`: any bound on ops that are not needed, if replay can remove
// them and tell how much of them the general finding counts.
constexpr std::string_view kRemoved = "*";
constexpr auto kYielding = std::to_array<Yielding>(
    {{"attention-by-hand", "allocator-churn"},
     {"cores-idle", "contended-cores"},
     {"d2h-pageable", "host-compute"},
     {"ddp-extra-copies", "missing-no-sync"},
     {"explicit-sync", "host-compute"},
     {"exposed-collective", "ddp-bucket-shape"},
     {"exposed-collective", "host-compute"},
     {"exposed-collective", "missing-no-sync"},
     {"foreach-not-fused", "dense-embedding-gradient", 1},
     {"fsdp-exposed", "frozen-shards"},
     {"function-by-hand", "large-vocabulary-loss"},
     {"h2d-pageable", "host-compute"},
     {"host-sync", "host-compute"},
     {"input-layer-in-loop", "rnn-in-python"},
     {"input-layer-in-loop", "unbatched-loop"},
     {"large-vocabulary-loss", "ignored-labels"},
     {"launch-bound", "activation-statistics"},
     {"launch-bound", "allocator-churn"},
     {"launch-bound", "attention-by-hand"},
     {"launch-bound", "boolean-mask"},
     {"launch-bound", "constant-rebuilt"},
     {"launch-bound", "foreach-not-fused"},
     {"launch-bound", "function-by-hand"},
     {"launch-bound", "host-compute"},
     {"launch-bound", "host-copy-on-convert"},
     {"launch-bound", "host-created-tensor"},
     {"launch-bound", "input-layer-in-loop"},
     {"launch-bound", "invariant-in-loop"},
     {"launch-bound", "lstm-step-by-step"},
     {"launch-bound", "networks-one-by-one"},
     {"launch-bound", "norms-one-by-one"},
     {"launch-bound", "parameter-penalty"},
     {"launch-bound", "pin-on-main-thread"},
     {"launch-bound", "recompute-cost"},
     {"launch-bound", "recomputed-weights"},
     {"launch-bound", "repeated-backward"},
     {"launch-bound", "rnn-in-python"},
     {"launch-bound", "unbatched-loop"},
     {"launch-bound", "unfused-optimizer"},
     {"launch-bound", "unread-gradients"},
     {"launch-bound", "work-between-steps"},
     {"layout-transpose", "unread-gradients"},
     {"loader-bound", "loader-restarted"},
     {"networks-one-by-one", "attention-by-hand"},
     {"product-order", "diagonal-product"},
     {"python-between-ops", "activation-statistics"},
     {"python-between-ops", "broadcast-contraction"},
     {"python-between-ops", "d2h-pageable"},
     {"python-between-ops", "host-copy-on-convert"},
     {"python-between-ops", "loader-restarted"},
     {"python-between-ops", "norms-one-by-one"},
     {"python-between-ops", "recomputed-weights"},
     {"python-between-ops", "unbatched-loop"},
     {"python-between-ops", "work-between-steps"},
     {"rnn-in-python", "recomputed-weights"},
     {"rnn-in-python", "repeated-backward"},
     {"small-batch", "activation-statistics"},
     {"small-batch", "attention-by-hand"},
     {"small-batch", "constant-rebuilt"},
     {"small-batch", "dense-embedding-gradient"},
     {"small-batch", "foreach-not-fused"},
     {"small-batch", "input-layer-in-loop"},
     {"small-batch", "lstm-step-by-step"},
     {"small-batch", "networks-one-by-one"},
     {"small-batch", "parameter-penalty"},
     {"small-batch", "recompute-cost"},
     {"small-batch", "recomputed-weights"},
     {"small-batch", "repeated-backward"},
     {"small-batch", "rnn-in-python"},
     {"small-batch", "unbatched-loop"},
     {"small-batch", "unfused-optimizer"},
     {"small-batch", "work-between-steps"},
     {"sorted-index-gradient", "gather-scatter", 1},
     {"sparse-kept-dense", "one-hot-product"},
     {"sync-data-loading", "constant-propagation"},
     {"sync-data-loading", "constant-rebuilt"},
     {"sync-data-loading", "host-copy-on-convert"},
     {"sync-data-loading", "late-selection"},
     {"sync-data-loading", "loader-restarted"},
     {"sync-data-loading", "product-order"},
     {"unbatched-loop", "parameter-penalty"},
     {"unbatched-loop", "repeated-backward"},
     {"unbatched-loop", "rnn-in-python"},
     {"unbatched-loop", "small-micro-batches"},
     {"unbatched-loop", "work-between-steps", 1},
     {"unfused-optimizer", "dense-embedding-gradient", 1, true},
     {"unfused-pointwise", kRemoved},
     {"unfused-pointwise", "activation-statistics"},
     {"unfused-pointwise", "allocator-churn"},
     {"unfused-pointwise", "attention-by-hand"},
     {"unfused-pointwise", "constant-rebuilt"},
     {"unfused-pointwise", "deterministic-fill"},
     {"unfused-pointwise", "function-by-hand", 1},
     {"unfused-pointwise", "ignored-labels"},
     {"unfused-pointwise", "large-vocabulary-loss"},
     {"unfused-pointwise", "lstm-step-by-step"},
     {"unfused-pointwise", "parameter-penalty"},
     {"unfused-pointwise", "repeated-backward"},
     {"unfused-pointwise", "repeated-forward"},
     {"unfused-pointwise", "rnn-in-python"},
     {"unfused-pointwise", "unbatched-loop"},
     {"unfused-pointwise", "work-between-steps"},
     {"unread-gradients", "repeated-backward"},
     {"work-between-steps", "host-compute"},
     {"work-between-steps", "unbatched-loop", 1}});

bool IsNeutral(std::string_view general) {
  return std::ranges::any_of(kYielding, [&](const Yielding& pair) {
    return pair.general == general && pair.is_neutral;
  });
}

bool YieldsToRemoved(std::string_view general) {
  return std::ranges::any_of(kYielding, [&](const Yielding& pair) {
    return pair.general == general && pair.specific == kRemoved;
  });
}

using Owners = std::vector<const SizedFinding*>;

// True if replay can tell what `general` gains on top of other changes.
bool CanReplay(const AnalysisContext& context, const SizedFinding& general) {
  return context.replay.check().valid && !general.edits.empty();
}

// The findings that `sized` yields to, largest first.
Owners OwnersOf(const AnalysisContext& context,
                const std::vector<SizedFinding>& found,
                const SizedFinding& sized) {
  const Finding& general = sized.finding;
  const bool can_replay = CanReplay(context, sized);
  Owners owners;
  for (const SizedFinding& one : found) {
    const bool is_owner =
        std::ranges::any_of(kYielding, [&](const Yielding& pair) {
          return pair.general == general.id &&
                 (pair.specific == one.finding.id ||
                  (pair.specific == kRemoved && one.at_best && can_replay)) &&
                 one.at_most > FindingSeverity::kLow &&
                 one.finding.gain.expected_ms >
                     pair.least * general.gain.expected_ms &&
                 // Which is a part of the other must not be a guess.
                 (pair.least == 0 ||
                  one.finding.confidence >= general.confidence);
        });
    if (is_owner && one.finding.gain_kind != GainKind::kNone &&
        LikelyMs(one.finding) >= MinReportableGainMs(context)) {
      owners.push_back(&one);
    }
  }
  std::ranges::stable_sort(owners, std::greater(), [](const SizedFinding* one) {
    return LikelyMs(one->finding);
  });
  return owners;
}

void PutAfter(const SizedFinding& owner, SizedFinding& general) {
  general.after = owner.finding.id;
  general.finding.evidence +=
      " This is what it still gains after the change of " + general.after + ".";
}

void StandBehind(const SizedFinding& owner, SizedFinding& neutral) {
  neutral.after = owner.finding.id;
  neutral.finding.evidence += " This gains part of what " + neutral.after +
                              " does, and leaves training as it is.";
}

// The change of `owner` as replay models it; nullptr if it cannot. The rest of
// small-batch and others is not replayed for bounds: what the ops cost beyond
// their own time would be left over.
const Edit* EditOf(const SizedFinding& owner, const Finding& general) {
  if (!owner.edits.empty()) return &owner.edits.front();
  return owner.at_best && YieldsToRemoved(general.id) ? &*owner.at_best
                                                      : nullptr;
}

// Sets the gain of `general` to what it still gains after the owners' changes.
// False if they do not affect it.
bool CountRest(const AnalysisContext& context, const Owners& owners,
               SizedFinding& general) {
  Edit before;
  for (const SizedFinding* owner : owners) {
    before = Combine(std::move(before), *EditOf(*owner, general.finding));
  }
  // Replays the general change on top of the specific ones. The likely range
  // shrinks by the same factor as its gain.
  const double step = context.replay.StepNs(before);
  const double left =
      step - context.replay.StepNs(Combine(before, general.edits.front()));
  Finding& finding = general.finding;
  const double share =
      std::max(0.0, left * 1e-6) / std::max(finding.gain.expected_ms, 1e-9);
  if (share >= 1) return false;  // the changes do not affect each other
  for (double* ms : {&finding.gain.low_ms, &finding.gain.expected_ms,
                     &finding.gain.high_ms}) {
    *ms *= share;
  }
  finding.baseline_ms = step * 1e-6;
  if (finding.gain.expected_ms < finding.baseline_ms) {
    finding.speedup =
        finding.baseline_ms / (finding.baseline_ms - finding.gain.expected_ms);
  }
  return true;
}

// The same if one of the gains is a bound. Both gains are taken to be the same
// time, so their difference bounds what is left.
void SubtractBounds(const AnalysisContext& context, const Owners& owners,
                    SizedFinding& general) {
  Finding& finding = general.finding;
  double owned_ms = 0;
  for (const SizedFinding* owner : owners) {
    owned_ms += owner->finding.gain.expected_ms;
  }
  for (double* gain : {&finding.gain.low_ms, &finding.gain.expected_ms,
                       &finding.gain.high_ms}) {
    *gain = std::max(0.0, *gain - owned_ms);
  }
  if (finding.gain_kind != GainKind::kPredicted) return;
  const double step_ms =
      finding.baseline_ms > 0 ? finding.baseline_ms : context.gain_step_ms();
  finding.baseline_ms = std::max(step_ms - owned_ms, finding.gain.expected_ms);
  const double after_ms = finding.baseline_ms - finding.gain.expected_ms;
  finding.speedup = after_ms > 0 ? finding.baseline_ms / after_ms : 0;
}

}  // namespace

void Yield(const AnalysisContext& context, std::vector<SizedFinding>& found,
           std::vector<std::string>& superseded) {
  std::vector<size_t> drained;  // rows of `found` that gain too little
  for (size_t i = 0; i < found.size(); ++i) {
    SizedFinding& general = found[i];
    const Owners owners = OwnersOf(context, found, general);
    if (owners.empty() || general.finding.gain_kind == GainKind::kNone) {
      continue;
    }
    if (IsNeutral(general.finding.id)) {
      StandBehind(*owners.front(), general);
      continue;
    }
    // First what replay can tell, then the others.
    Owners replayed, bounds;
    for (const SizedFinding* owner : owners) {
      const bool can = CanReplay(context, general) &&
                       EditOf(*owner, general.finding) != nullptr;
      (can ? replayed : bounds).push_back(owner);
    }
    // Other findings are counted in one way: by replay, or as bounds.
    if (!bounds.empty() && !YieldsToRemoved(general.finding.id)) {
      bounds = owners;
      replayed.clear();
    }
    const bool is_rest =
        !replayed.empty() && CountRest(context, replayed, general);
    if (!bounds.empty()) SubtractBounds(context, bounds, general);
    if (is_rest || !bounds.empty()) PutAfter(*owners.front(), general);
    if (LikelyMs(general.finding) >= MinReportableGainMs(context)) continue;
    superseded.push_back(
        SupersededBy(general.finding.id, owners.front()->finding.id));
    drained.push_back(i);
  }
  // Erased only after the loop, because the owners point into `found`.
  for (; !drained.empty(); drained.pop_back()) {
    found.erase(found.begin() + static_cast<std::ptrdiff_t>(drained.back()));
  }
}

}  // namespace stepscope
