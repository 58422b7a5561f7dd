#include "engine/outcomes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/student_t.h"
#include "steps/step_window.h"

namespace stepscope {
namespace {

// With fewer pairs, no interval is given.
constexpr size_t kLeastPairs = 3;
// The share of the outcomes below the range.
constexpr double kBeyond = 0.05;

enum ChangeKind : size_t {
  kWorkers,
  kThreads,
  kReplaced,
  kBatch,
  kZeroGrad,
  kKinds
};

double MeanLog(std::span<const double> ratios) {
  double sum = 0;
  for (double ratio : ratios) sum += std::log(ratio);
  return sum / static_cast<double>(ratios.size());
}

// True if the edit replaces ops by equivalent ones. On a run with a GPU such an
// edit also scales or removes kernels, and no outcomes are known for that.
bool ReplacesOps(const Edit& edit) {
  return edit.fused_update >= 0 ||
         std::ranges::any_of(edit.cuts, [](const HostCut& cut) {
           return cut.change != nullptr;
         });
}

// The edit without the changes that have a list in KnownPairs().
Edit WithoutKnown(Edit edit) {
  edit.workers = edit.threads = -1;
  edit.batch = 1;
  edit.drop_zero_grad = false;
  if (ReplacesOps(edit)) {
    edit.cuts.clear();
    edit.fused_update = -1;
  }
  return edit;
}

}  // namespace

// Two sorts of pairs are left out: those in which the measured change is not
// significant, and those for which only the error is on record, not the
// prediction. Sources: samples/resnet/RESULTS.md ("Single changes" at 32 x 32
// and 64 x 64, "Rungs", "Climbs" at 32 x 32 and with bad habits, "Sweep"). The
// last pair of kWorkers is the public pair resnet50_v100_workers0/4
// (tests/advice/TRACES.md). The pairs of kReplaced, ops of a CPU-only run
// replaced by equivalent ones, are attention_by_hand, gru_by_hand,
// tabular_adam_loop and foreach_adamw from the half of tests/advice/programs
// that may be used for this. The last pair of kBatch is accumulation_tiny from
// the same half.
std::span<const std::vector<double>> KnownPairs() {
  static const std::array<std::vector<double>, kKinds> pairs = {{
      {1.01, 0.98, 0.90, 0.69, 0.92},              // kWorkers
      {0.96, 0.67, 1.09, 0.41},                    // kThreads
      {0.70, 0.80, 1.10, 1.15},                    // kReplaced
      {1.46, 1.55, 0.87, 1.82, 2.07, 2.20, 1.20},  // kBatch
      {1.31, 1.14, 1.88},                          // kZeroGrad
  }};
  return pairs;
}

Outcomes PredictPair(std::span<const std::vector<double>> kinds, size_t which) {
  double squares = 0;
  size_t degrees = 0;
  for (const std::vector<double>& kind : kinds) {
    if (kind.size() < 2) continue;
    const double mean = MeanLog(kind);
    for (double ratio : kind) {
      squares += (std::log(ratio) - mean) * (std::log(ratio) - mean);
    }
    degrees += kind.size() - 1;
  }
  const auto count = static_cast<double>(kinds[which].size());
  const double half = StudentT(degrees, Within::k90) *
                      std::sqrt(squares / static_cast<double>(degrees)) *
                      std::sqrt(1 + 1 / count);
  const double mean = MeanLog(kinds[which]);
  // The interval always contains 1, because the prediction may hold exactly.
  return {.low = std::min(1.0, std::exp(mean - half)),
          .high = std::max(1.0, std::exp(mean + half)),
          .pairs = kinds[which].size()};
}

// From the programs of tests/advice/programs: recordings of 2026-11-29 in which
// the rule's finding was the first one and steps varied by at most 15 %, and
// the measured ratios in RESULTS.md there.
std::span<const KnownBounds> BoundsOfRules() {
  static const std::array bounds = std::to_array<KnownBounds>({
      {"broadcast-contraction", {0.72, 0.84, 0.88, 0.94, 0.94, 1.07}},
      {"debug-api-on", {0.69, 0.73, 0.77, 0.81, 0.84}},
      {"dense-embedding-gradient", {0.38, 0.57, 0.69, 0.92, 1.03}},
      {"diagonal-covariance", {0.85, 0.87, 0.97}},
      {"direct-convolution", {-0.25, 0.85, 0.96, 0.97}},
      {"explicit-inverse", {0.48, 0.67, 1.13}},
      {"function-by-hand", {0.49, 0.49, 0.57}},
      {"host-copy-on-convert", {0.82, 0.83, 0.88, 0.92, 1.03, 1.12}},
      {"ignored-labels", {0.65, 0.66, 0.7, 0.74, 0.76, 0.77}},
      {"invariant-in-loop", {0.69, 0.94, 1.02}},
      {"late-selection", {0.52, 0.72, 0.78, 0.9, 0.92, 0.95, 1.18}},
      {"missing-no-sync", {0.67, 0.76, 0.77}},
      {"padded-to-maximum",
       {0.73, 0.74, 0.75, 0.79, 0.81, 0.83, 0.84, 0.84, 0.93}},
      {"product-order", {0.78, 0.81, 0.9, 1}},
      {"repeated-rows", {0.69, 0.81, 1.17}},
      {"sync-data-loading",
       {-0.17, 0.54, 0.7, 0.74, 0.82, 0.84, 0.89, 0.9, 0.92}},
      {"unbatched-loop",
       {0.38, 0.51, 0.53, 0.59, 0.64, 0.69, 0.69, 0.73, 0.75, 0.76, 0.78,
        0.8,  0.8,  0.83, 0.85, 0.87, 0.88, 0.88, 0.9,  0.92, 0.92, 0.92,
        0.93, 0.93, 0.94, 0.95, 0.98, 0.99, 1.02, 1.03, 1.03, 1.04, 1.12}},
      {"unread-gradients",
       {0.75, 0.78, 0.79, 0.8, 0.83, 0.83, 0.86, 0.96, 0.96, 0.97, 1.01, 1.01,
        1.03, 1.08, 1.36}},
      {"work-between-steps", {0.86, 0.86, 0.87, 0.94, 0.99, 1}},
  });
  return bounds;
}

double LeastOfBound(const KnownBounds& known,
                    std::span<const KnownBounds> all) {
  std::vector<double> relative;
  for (const KnownBounds& one : all) {
    const double median = Median(one.shares);
    for (double share : one.shares) relative.push_back(share / median);
  }
  const auto least =
      relative.begin() + static_cast<std::ptrdiff_t>(
                             kBeyond * static_cast<double>(relative.size()));
  std::ranges::nth_element(relative, least);
  return std::clamp(Median(known.shares) * *least, 0.0, 1.0);
}

Outcomes OutcomesOfBound(std::string_view rule) {
  const auto known =
      std::ranges::find(BoundsOfRules(), rule, &KnownBounds::rule);
  if (known == BoundsOfRules().end()) return {};
  return {.low = LeastOfBound(*known, BoundsOfRules()),
          .pairs = known->shares.size()};
}

double GainFor(double outcome, double predicted, double step) {
  return step * (1 - std::pow(1 - predicted / step, outcome));
}

Outcomes OutcomesOf(const Edit& edit) {
  std::vector<size_t> kinds;
  if (edit.workers >= 0) kinds.push_back(kWorkers);
  if (edit.threads > 0) kinds.push_back(kThreads);
  if (ReplacesOps(edit)) kinds.push_back(kReplaced);
  if (edit.batch != 1) kinds.push_back(kBatch);
  if (edit.drop_zero_grad) kinds.push_back(kZeroGrad);
  if (kinds.empty() || WithoutKnown(edit) != Edit()) return {};
  Outcomes all{.pairs = ~size_t{0}};
  for (size_t kind : kinds) {
    if (KnownPairs()[kind].size() < kLeastPairs) return {};
    const Outcomes one = PredictPair(KnownPairs(), kind);
    all.low = std::min(all.low, one.low);
    all.high = std::max(all.high, one.high);
    all.pairs = std::min(all.pairs, one.pairs);
  }
  return all;
}

}  // namespace stepscope
