#include "engine/outcomes.h"

#include <algorithm>
#include <span>
#include <vector>

namespace stepscope {
namespace {

// Fewer pairs show no interval.
constexpr size_t kLeastPairs = 3;

// Measured gain / predicted gain, each a share of its own step. Left out are
// pairs whose measurement does not tell the change from none, and predictions
// that were not kept. Sources, in order: samples/resnet/RESULTS.md ("Single
// changes" at 32 x 32 and 64 x 64, "Rungs", "Climbs", "Sweep"); of workers the
// last is the public pair resnet50_v100_workers0/4 (tests/advice/TRACES.md). No
// pair of a larger batch is known since its model changed.
constexpr double kWorkers[] = {1.01, 0.98, 0.91, 0.71, 0.93};
constexpr double kThreads[] = {0.97, 0.71, 1.07};
// Ops of a CPU-only run replaced by one that does the same: attention_by_hand,
// gru_by_hand, tabular_adam_loop and foreach_adamw of the half of
// tests/advice/programs that may be used for it.
constexpr double kReplaced[] = {0.72, 0.85, 1.09, 1.10};

// The interval always contains 1: a prediction that was kept is a possible
// outcome.
Outcomes IntervalOf(std::span<const double> ratios) {
  if (ratios.size() < kLeastPairs) return {};
  std::vector<double> sorted(ratios.begin(), ratios.end());
  std::ranges::sort(sorted);
  // Of fewer than 20, all.
  const auto cut =
      static_cast<size_t>(0.05 * static_cast<double>(sorted.size()));
  return {std::min(sorted[cut], 1.0),
          std::max(sorted[sorted.size() - 1 - cut], 1.0), sorted.size()};
}

// On a GPU kernels are scaled or removed as well.
bool ReplacesOps(const Edit& edit) {
  return edit.fused_update >= 0 ||
         std::ranges::any_of(edit.cuts, [](const HostCut& cut) {
           return cut.change != nullptr;
         });
}

// The edit without the changes that have a table.
Edit WithoutKnown(Edit edit) {
  edit.workers = edit.threads = -1;
  if (ReplacesOps(edit)) {
    edit.cuts.clear();
    edit.fused_update = -1;
  }
  return edit;
}

}  // namespace

Outcomes OutcomesOf(const Edit& edit) {
  std::vector<std::span<const double>> kinds;
  if (edit.workers >= 0) kinds.push_back(kWorkers);
  if (edit.threads > 0) kinds.push_back(kThreads);
  if (ReplacesOps(edit)) kinds.push_back(kReplaced);
  if (kinds.empty() || WithoutKnown(edit) != Edit()) return {};
  Outcomes all{.pairs = ~size_t{0}};
  for (std::span<const double> kind : kinds) {
    const Outcomes one = IntervalOf(kind);
    all.low = std::min(all.low, one.low);
    all.high = std::max(all.high, one.high);
    all.pairs = std::min(all.pairs, one.pairs);
  }
  return all;
}

}  // namespace stepscope
