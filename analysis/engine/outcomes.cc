#include "engine/outcomes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "ops/contains.h"
#include "ops/student_t.h"
#include "steps/step_window.h"

namespace stepscope {
namespace {

// With fewer pairs, no interval is given.
constexpr size_t kLeastPairs = 3;
// The share of the outcomes below the range.
constexpr double kBeyond = 0.05;

// How many pairs the spread of all changes counts for, beside that of a single
// one: as many as a range needs.
constexpr double kPriorPairs = kLeastPairs;

// Names of changes in KnownChanges() that are no HostCut::change.
constexpr std::string_view kWorkers = "workers", kThreads = "threads",
                           kBatch = "batch", kZeroGrad = "no zeroed gradients",
                           kAnomaly = "no anomaly mode",
                           kFusedUpdate = "fused optimizer step";

double MeanLog(std::span<const double> ratios) {
  double sum = 0;
  for (double ratio : ratios) sum += std::log(ratio);
  return sum / static_cast<double>(ratios.size());
}

double SquaresAround(double mean, std::span<const double> ratios) {
  double sum = 0;
  for (double ratio : ratios) {
    sum += (std::log(ratio) - mean) * (std::log(ratio) - mean);
  }
  return sum;
}

// True for changes that replace ops by equivalent ones or remove them.
bool ReplacesOps(std::string_view change) {
  return !IsAnyOf(change, {kWorkers, kThreads, kBatch, kZeroGrad, kAnomaly});
}

// The edit without the changes that ChangesOf() names. On a run with a GPU an
// edit that replaces ops also scales or removes kernels, and no outcomes are
// known for that.
Edit WithoutNamed(Edit edit) {
  edit.workers = edit.threads = -1;
  edit.batch = 1;
  edit.drop_zero_grad = edit.drop_anomaly = false;
  edit.fused_update = -1;
  if (std::ranges::any_of(edit.cuts, &HostCut::change)) edit.cuts.clear();
  return edit;
}

std::set<std::string_view> ChangesOf(const Edit& edit) {
  std::set<std::string_view> changes;
  if (edit.workers >= 0) changes.insert(kWorkers);
  if (edit.threads > 0) changes.insert(kThreads);
  if (edit.batch != 1) changes.insert(kBatch);
  if (edit.drop_zero_grad) changes.insert(kZeroGrad);
  if (edit.drop_anomaly) changes.insert(kAnomaly);
  if (edit.fused_update >= 0) changes.insert(kFusedUpdate);
  for (const HostCut& cut : edit.cuts) {
    if (cut.change != nullptr) changes.insert(cut.change);
  }
  return changes;
}

}  // namespace

// Three sorts of pairs are left out: those in which the measured change is not
// significant, those for which only the error is on record, and hints. Sources:
// samples/resnet/RESULTS.md ("Single changes" at 32 x 32 and 64 x 64, "Rungs",
// "Climbs" at 32 x 32 and with bad habits, "Sweep") for the first five; the
// last pair of kWorkers is the public pair resnet50_v100_workers0/4
// (tests/advice/TRACES.md), that of kBatch is accumulation_tiny, and those of
// kAnomaly are review_unet_anomaly and start_gpt, recorded by stepscope. All
// others are CPU-only runs, programs of tests/advice/programs: recordings of
// 2026-11-29, and the measured ratios in RESULTS.md there.
std::span<const KnownChange> KnownChanges() {
  static const std::array changes = std::to_array<KnownChange>({
      {kWorkers, {1.01, 0.98, 0.90, 0.69, 0.92}},
      {kThreads, {0.96, 0.67, 1.09, 0.41}},
      {kBatch, {1.46, 1.55, 0.87, 1.82, 2.07, 2.20, 1.20}},
      {kZeroGrad, {1.31, 1.14, 1.88}},
      {kAnomaly, {1.07, 1.53, 2.00}},
      {kFusedUpdate, {0.67, 0.83, 0.86, 1.19, 1.35, 1.47, 1.79, 2.07, 2.53}},
      {"fused attention", {0.78, 0.90, 0.93, 1.20, 1.35}},
      {"no node of autograd run again",
       {0.66, 0.84, 0.95, 0.96, 0.99, 0.99, 1.00, 1.02, 1.06, 1.14, 1.22, 1.22,
        1.23, 1.26, 1.32}},
      {"recurrence in one call", {0.71, 0.91, 1.18, 1.74}},
      {"samples drawn ahead", {0.79, 1.09, 1.11, 1.13}},
  });
  return changes;
}

Outcomes PredictPair(std::span<const KnownChange> known,
                     std::string_view change) {
  std::vector<double> own, replaced;
  double all_squares = 0, all_degrees = 0;
  for (const KnownChange& one : known) {
    const std::vector<double>& pairs = one.outcomes;
    if (one.change == change) own = pairs;
    if (ReplacesOps(one.change)) {
      replaced.insert(replaced.end(), pairs.begin(), pairs.end());
    }
    if (pairs.size() < 2) continue;
    all_squares += SquaresAround(MeanLog(pairs), pairs);
    all_degrees += static_cast<double>(pairs.size() - 1);
  }
  if (own.size() < kLeastPairs && ReplacesOps(change)) own = replaced;
  if (own.size() < 2) return {};
  const double mean = MeanLog(own);
  const auto count = static_cast<double>(own.size());
  const double degrees = kPriorPairs + count - 1;
  const double variance =
      (kPriorPairs * all_squares / all_degrees + SquaresAround(mean, own)) /
      degrees;
  const double half = StudentT(static_cast<size_t>(degrees), Within::k90) *
                      std::sqrt(variance * (1 + 1 / count));
  // The interval always contains 1, because the prediction may hold exactly.
  return {.low = std::min(1.0, std::exp(mean - half)),
          .high = std::max(1.0, std::exp(mean + half)),
          .pairs = own.size()};
}

// From the programs of tests/advice/programs: recordings of 2026-11-29 in which
// the rule's finding was the first one and steps varied by at most 15 %, and
// the measured ratios in RESULTS.md there.
std::span<const KnownBounds> BoundsOfRules() {
  static const std::array bounds = std::to_array<KnownBounds>({
      {"broadcast-contraction", {0.65, 0.68, 0.83, 0.93, 1, 1}},
      {"debug-api-on", {0.69, 0.7, 0.84, 0.84}},
      {"dense-embedding-gradient", {0.39, 0.4, 0.56, 0.9, 0.96, 0.97, 1}},
      {"diagonal-covariance", {0.78, 0.78, 0.85}},
      {"direct-convolution", {0.55, 0.87, 0.88}},
      {"explicit-inverse", {0.36, 0.39, 0.55}},
      {"growing-prefix", {0.53, 0.59, 0.71, 1}},
      {"host-copy-on-convert", {0.85, 0.9, 0.91, 0.97}},
      {"ignored-labels", {0.55, 0.58, 0.63, 0.65, 0.65}},
      {"invariant-in-loop", {0.55, 0.69, 0.73, 0.76}},
      {"late-selection", {0.53, 0.58, 0.71, 0.74, 0.82, 0.88, 0.95}},
      {"missing-no-sync", {0.64, 0.66, 0.71, 0.83}},
      {"padded-to-maximum",
       {0.62, 0.65, 0.71, 0.72, 0.73, 0.73, 0.75, 0.77, 0.85}},
      {"product-order", {0.68, 0.8, 0.82}},
      {"unbatched-loop", {0.35, 0.56, 0.57, 0.63, 0.63, 0.67, 0.69, 0.69, 0.69,
                          0.71, 0.72, 0.74, 0.75, 0.76, 0.77, 0.79, 0.84, 0.85,
                          0.85, 0.91, 0.91, 0.92, 0.95, 0.95, 0.96, 1.05}},
      {"unread-gradients",
       {0.56, 0.63, 0.69, 0.7, 0.73, 0.74, 0.75, 0.77, 0.79, 0.8, 0.81, 0.87,
        0.89, 0.9, 0.9, 0.92, 0.92, 0.92, 1.21}},
      {"work-between-steps",
       {0.67, 0.74, 0.87, 0.93, 0.96, 0.97, 1, 1.03, 1.14}},
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
  const std::set<std::string_view> changes = ChangesOf(edit);
  if (changes.empty() || WithoutNamed(edit) != Edit()) return {};
  Outcomes all{.pairs = ~size_t{0}};
  for (std::string_view change : changes) {
    const Outcomes one = PredictPair(KnownChanges(), change);
    if (one.pairs < kLeastPairs) return {};
    all.low = std::min(all.low, one.low);
    all.high = std::max(all.high, one.high);
    all.pairs = std::min(all.pairs, one.pairs);
  }
  return all;
}

}  // namespace stepscope
