#include "engine/outcomes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/student_t.h"

namespace stepscope {
namespace {

// With fewer pairs, no interval is given.
constexpr size_t kLeastPairs = 3;

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
