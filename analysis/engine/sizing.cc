#include "engine/sizing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "context/noise.h"
#include "engine/outcomes.h"
#include "ops/student_t.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Unfavourable and favourable values of the replay parameters that the
// recording does not determine. First, the efficiency of doubling the threads.
constexpr double kPoorEfficiency = 0.7, kGoodEfficiency = 0.95;
// How far replay may be off, as a share of the gain, if no pair of runs is
// known (engine/outcomes.h). Judged with the tests' simulator.
constexpr double kModelError = 0.1;
// If there is only one steady step, nothing shows that it is longer than usual,
// as long as it is less than a fifth longer: steps.cc calls a step slow only
// from there on.
constexpr double kLoneStepError = 0.2;
// A smaller share that noise adds to a bound is not worth a sentence.
constexpr double kNoiseToTell = 0.05;
// The share of the step that another memory format may save or cost on a CPU.
constexpr double kLayoutError = 0.1;
// CPU time of a batch in a worker / on the training thread.
constexpr double kDearWorker = 1.25, kCheapWorker = 0.9;
// Device time actually saved / device time expected to be saved.
constexpr double kPoorScale = 0.7, kGoodScale = 1.15;
constexpr ReplayParameters kPoor = {.thread_efficiency = kPoorEfficiency,
                                    .worker_cost = kDearWorker,
                                    .scale_effect = kPoorScale,
                                    .assumed_effect = 0};
constexpr ReplayParameters kGood = {.thread_efficiency = kGoodEfficiency,
                                    .worker_cost = kCheapWorker,
                                    .scale_effect = kGoodScale};

// Adds the words of `wording` to `finding`.
void ApplyWording(const Wording& wording, Finding& finding) {
  finding.evidence += wording.evidence;
  if (!wording.assumption.empty()) finding.assumption = wording.assumption;
  if (!wording.fix_cpp.empty()) finding.fix_cpp = wording.fix_cpp;
  if (!wording.fix_python.empty()) finding.fix_python = wording.fix_python;
  if (wording.confidence) finding.confidence = *wording.confidence;
}

// A bound is a mean over the recorded steps, and the mean of another run may be
// higher. So half the width of the mean's 95 % interval is added. Returns that
// as a share of the mean.
double NoiseFrac(const AnalysisContext& context) {
  const int64_t steps = context.stats.steady;
  if (steps < 2) return 0;
  return StudentT(static_cast<size_t>(steps - 1), Within::k95) *
         RobustCov(context) / std::sqrt(static_cast<double>(steps));
}

void ClaimBound(double bound_ns, Finding& finding) {
  if (bound_ns <= 0) return;
  finding.gain_kind = GainKind::kBound;
  finding.gain = {bound_ns * 1e-6, 0, bound_ns * 1e-6};
}

void ClaimNothing(Finding& finding) {
  finding.gain_kind = GainKind::kNone;
  finding.gain = Gain();
  finding.speedup = 0;
}

// True if `edit` only shortens what it changes, to a length that the rule
// assumes. The rule's bound then rests on the same assumption, which may be off
// in both directions, so it must not limit the range.
bool LeavesAssumedRest(const Edit& edit) {
  const auto stays = [](const ActivityScale& scale) {
    return scale.factor > 0;
  };
  const auto keeps = [](const HostCut& cut) { return cut.keep_ns > 0; };
  return edit.batch != 1 || edit.threads >= 0 || edit.fused_update >= 0 ||
         edit.dispatch_ns >= 0 || std::ranges::any_of(edit.scales, stays) ||
         std::ranges::any_of(edit.cuts, keeps);
}

// Sets the gain of `finding` to the predicted gain of `edit`. At most `most_ms`
// of it is claimed. The range ends at `bound_ms` at the latest, because the
// rule saw no more time that the change can save; 0 if the rule does not know.
void ClaimPrediction(const AnalysisContext& context, const Edit& edit,
                     const std::optional<Edit>& best_case, double most_ms,
                     double bound_ms, Finding& finding) {
  Gain gain = PredictGain(context, edit);
  if (gain.expected_ms <= 0) return;
  // The claimed share of the gain is as uncertain as the whole.
  gain.low_ms *= std::min(1.0, most_ms / gain.expected_ms);
  gain.expected_ms = std::min(gain.expected_ms, most_ms);
  gain.high_ms = std::min(gain.high_ms, most_ms);
  finding.gain_kind = GainKind::kPredicted;
  finding.gain = gain;
  if (best_case) {
    finding.gain.low_ms = 0;
    finding.gain.high_ms = PredictGain(context, *best_case).expected_ms;
    finding.gain.pairs = 0;
  }
  // Known outcomes of replaced ops include gains beyond the bound: ops also
  // cost time that they do not take, for example by what they evict from the
  // caches.
  const bool may_exceed = gain.pairs > 0 && !edit.cuts.empty();
  if (bound_ms > 0 && !may_exceed && !LeavesAssumedRest(edit)) {
    finding.gain.high_ms = std::max(finding.gain.expected_ms,
                                    std::min(finding.gain.high_ms, bound_ms));
  }
  // A hint may be completely wrong.
  if (finding.confidence == Confidence::kHint) finding.gain.low_ms = 0;
  const double step_ms = context.gain_step_ms();
  if (gain.expected_ms < step_ms) {
    finding.speedup = step_ms / (step_ms - gain.expected_ms);
  }
}

// Moves the alternative with the shortest step to the front.
void ChooseShortest(const Replay& replay, double worth,
                    std::vector<Alternative>& alternatives) {
  if (alternatives.size() < 2) return;
  size_t best = 0;
  double best_ns = replay.StepNs(alternatives[0].edit);
  for (size_t i = 1; i < alternatives.size(); ++i) {
    const double ns = replay.StepNs(alternatives[i].edit);
    if (ns >= (1 - worth) * best_ns) continue;
    best = i;
    best_ns = ns;
  }
  // The others keep their order.
  const auto front = alternatives.begin();
  const auto at = front + static_cast<std::ptrdiff_t>(best);
  std::rotate(front, at, at + 1);
}

// Keeps alternatives as long as each one shortens the step further, and
// reverses their order.
void ClimbLadder(const Replay& replay, double worth,
                 std::vector<Alternative>& alternatives) {
  double step_ns = replay.StepNs({});
  size_t holding = 0;
  for (; holding < alternatives.size(); ++holding) {
    const double ns = replay.StepNs(alternatives[holding].edit);
    if (ns > (1 - worth) * step_ns) break;
    step_ns = ns;
  }
  alternatives.resize(holding);
  std::ranges::reverse(alternatives);
}

// The gain of the best trial in ns per step; 0 if none gains anything.
double BestTrialNs(const AnalysisContext& context,
                   const std::vector<Edit>& trials) {
  double best = 0;
  for (const Edit& trial : trials) {
    best = std::max(best,
                    context.replay.StepNs({}) - context.replay.StepNs(trial));
  }
  return best;
}

void ApplySmallGain(Wording wording, SizedFinding& sized) {
  constexpr std::string_view kPlace = "{gain}";
  const std::string gain = Milliseconds(sized.finding.gain.expected_ms);
  for (size_t at = wording.evidence.find(kPlace); at != std::string::npos;
       at = wording.evidence.find(kPlace, at + gain.size())) {
    wording.evidence.replace(at, kPlace.size(), gain);
  }
  ApplyWording(wording, sized.finding);
  if (wording.fix_cpp.empty()) return;
  ClaimNothing(sized.finding);
  sized.edits.clear();
}

// In order, so that Combine() need not sort the edit again for each plan.
void Sort(Edit& edit) {
  if (!std::ranges::is_sorted(edit.scales, {}, &ActivityScale::activity)) {
    std::ranges::stable_sort(edit.scales, {}, &ActivityScale::activity);
  }
}

SizedFinding Propose(Found& found) {
  SizedFinding sized{.finding = std::move(found.finding),
                     .regardless = found.regardless,
                     .beyond_noise = found.beyond_noise,
                     .at_most = found.at_most,
                     .asks = found.asks};
  sized.finding.baseline_ms = found.baseline_ms;
  for (Alternative& alternative : found.alternatives) {
    sized.edits.push_back(std::move(alternative.edit));
  }
  if (sized.edits.empty() && found.trials.size() == 1) {
    sized.at_best = std::move(found.trials.front());
  }
  return sized;
}

// Return `gain_ms` if the prediction is off by the share `error`, for the
// better or the worse. As with outcomes, the error applies to the logarithm of
// the step ratio, so the step always stays above 0.
double Better(double gain_ms, double error, double step_ms) {
  return GainFor(gain_ms > 0 ? 1 + error : 1 - error, gain_ms, step_ms);
}
double Worse(double gain_ms, double error, double step_ms) {
  return GainFor(gain_ms > 0 ? 1 - error : 1 + error, gain_ms, step_ms);
}

// Sets the range of `gain` from the parameters that the recording does not
// determine.
void SpreadByModel(const AnalysisContext& context, const Edit& edit, double now,
                   Gain& gain) {
  const Replay& replay = context.replay;
  const auto gain_ms = [&](const ReplayParameters& parameters) {
    return (now - replay.StepNs(edit, parameters)) * 1e-6;
  };
  // True if the edit does not depend on the parameters that are varied below.
  const bool certain =
      replay.device() != nullptr && edit.scales.empty() && edit.workers < 0;
  const double poor = certain ? gain.expected_ms : gain_ms(kPoor);
  const double good = certain ? gain.expected_ms : gain_ms(kGood);
  const double margin = edit.channels_last ? kLayoutError * now * 1e-6 : 0;
  const double step_ms = std::max(now * 1e-6, gain.expected_ms);
  gain.low_ms =
      std::min(Worse(gain.expected_ms, kModelError, step_ms) - margin, poor);
  gain.high_ms =
      std::max(Better(gain.expected_ms, kModelError, step_ms) + margin, good);
}

}  // namespace

Gain PredictDifference(const AnalysisContext& context, const Edit& edit) {
  const Replay& replay = context.replay;
  const double now = replay.StepNs({});
  Gain gain;
  gain.expected_ms = (now - replay.StepNs(edit)) * 1e-6;
  const Outcomes known = OutcomesOf(edit);
  gain.pairs = static_cast<int64_t>(known.pairs);
  const double step_ms = std::max(now * 1e-6, gain.expected_ms);
  if (known.pairs > 0) {
    gain.low_ms = GainFor(known.low, gain.expected_ms, step_ms);
    gain.high_ms = GainFor(known.high, gain.expected_ms, step_ms);
    if (gain.low_ms > gain.high_ms) std::swap(gain.low_ms, gain.high_ms);
    // The known outcomes are from other machines, so they do not cover a rate
    // that is only assumed for this one.
    if (std::ranges::any_of(edit.scales, &ActivityScale::assumed)) {
      gain.low_ms =
          std::min(gain.low_ms, (now - replay.StepNs(edit, kPoor)) * 1e-6);
    }
  } else {
    SpreadByModel(context, edit, now, gain);
  }
  const double steps = std::max<double>(
      static_cast<double>(context.replayed.steps.steady.size()), 1);
  const double noise =
      steps > 1 ? RobustCov(context) / std::sqrt(steps) : kLoneStepError;
  gain.low_ms = Worse(gain.low_ms, noise, step_ms);
  gain.high_ms = Better(gain.high_ms, noise, step_ms);
  return gain;
}

Gain PredictGain(const AnalysisContext& context, const Edit& edit) {
  Gain gain = PredictDifference(context, edit);
  gain.low_ms = std::max(gain.low_ms, 0.0);
  gain.high_ms = std::min(gain.high_ms, context.gain_step_ms());
  return gain;
}

SizedFinding SizeByBound(Found found) {
  if (found.needs_replay) found.alternatives.clear();
  if (!found.alternatives.empty()) {
    ApplyWording(found.alternatives.front().wording, found.finding);
  }
  SizedFinding sized = Propose(found);
  ClaimBound(found.bound_ns, sized.finding);
  ApplyWording(found.if_bound, sized.finding);
  return sized;
}

std::optional<SizedFinding> Size(const AnalysisContext& context, Found found) {
  std::erase_if(found.alternatives, [](const Alternative& alternative) {
    return alternative.edit == Edit();
  });
  for (Alternative& alternative : found.alternatives) Sort(alternative.edit);
  for (Edit& trial : found.trials) Sort(trial);
  const Replay& replay = context.replay;
  const double most_ms =
      found.choice == Choice::kWithinBound ? found.bound_ns * 1e-6 : 1e300;
  // Not for rules with their own baseline, or that find what makes steps vary:
  // they know how far their bound may be off.
  double noise = 0;
  if (found.baseline_ms == 0 && !found.beyond_noise) {
    noise = NoiseFrac(context);
    found.bound_ns *= 1 + noise;
  }
  if (!replay.check().valid || found.alternatives.empty()) {
    bool no_trial_gains = false;
    if (replay.check().valid && !found.trials.empty()) {
      const double best_ns = BestTrialNs(context, found.trials);
      no_trial_gains = best_ns < MinReportableGainMs(context) * 1e6;
      // A bound counts the GPU's time. If the host limits the step, the change
      // may save more on the host than that.
      if (context.has_gpu) found.bound_ns = std::max(found.bound_ns, best_ns);
    }
    Wording if_small = std::move(found.if_small);
    SizedFinding sized = SizeByBound(std::move(found));
    if (noise >= kNoiseToTell && sized.finding.gain_kind == GainKind::kBound) {
      sized.finding.evidence +=
          " The bound includes " + Percent(noise) + " for steps that vary.";
    }
    if (no_trial_gains) ApplySmallGain(std::move(if_small), sized);
    return sized;
  }

  if (found.choice == Choice::kLadder) {
    ClimbLadder(replay, found.worth, found.alternatives);
    if (found.alternatives.empty()) return std::nullopt;
  } else {
    ChooseShortest(replay, found.worth, found.alternatives);
  }
  const Wording proposed = std::move(found.alternatives.front().wording);
  SizedFinding sized = Propose(found);
  // Replay already accounts for the time that collectives would still take.
  sized.finding.collectives_frac = 0;
  // A single step may have been shorter than usual, and it shows no noise.
  const double lone = context.stats.steady < 2 ? 1 + kLoneStepError : 1;
  ClaimPrediction(context, sized.edits.front(), found.best_case, most_ms,
                  lone * found.bound_ns * 1e-6, sized.finding);
  const bool small =
      sized.finding.gain.expected_ms < MinReportableGainMs(context);
  if (!small || found.if_small.fix_cpp.empty())
    ApplyWording(proposed, sized.finding);
  if (small) ApplySmallGain(std::move(found.if_small), sized);
  return sized;
}

}  // namespace stepscope
