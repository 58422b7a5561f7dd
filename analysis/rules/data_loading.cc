// Is the step waiting for batches that the training thread makes?
// Sources: PyTorch Performance Tuning Guide, "Enable asynchronous data loading
// and augmentation"; the ResNet-18 case study, step 1.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/loading.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kInMemoryBatchNs = 200'000;
constexpr double kMostSteps = 2.0 / 3;
constexpr double kFetchNs = 50'000;  // to take a batch from a worker

// No loader is to be seen, but batches are made: what a C++ loop does that
// reads its dataset itself.
Verdict CheckCollation(const AnalysisContext& m) {
  const Collation collation = FindCollation(m);
  if (collation.steps_frac < kMostSteps ||
      collation.idle_ns < kInMemoryBatchNs ||
      collation.idle_ns * 1e-6 < MinReportableGainMs(m)) {
    return Skip(kNoLoader);
  }
  const double step = m.step_ns();
  Finding finding;
  finding.confidence = Confidence::kStrong;
  Edit edit;
  for (const Span& batch : collation.spans) {
    edit.cuts.push_back({m.steps.thread, batch, kFetchNs});
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {-1, batch.begin_ns, batch.end_ns, "decoding and collating"});
    }
  }
  finding.evidence =
      "The training thread decodes and collates samples itself, and no other "
      "thread does: " +
      Milliseconds(collation.idle_ns * 1e-6) + " of the " +
      Milliseconds(step * 1e-6) + " step (" +
      Percent(collation.idle_ns / step) + ")" +
      (m.has_gpu ? " pass with the GPU idle." : ".");
  finding.where = "ops that stack samples or cast bytes, before the model";
  finding.assumption = "a core is free for each worker";
  finding.wrong_if =
      "these ops are part of the model, or the batches cannot be made on "
      "another thread";
  const double rest = std::max(step - collation.idle_ns, 1.0);
  const int cores = CoresForLoading(m);
  int count = static_cast<int>(
                  std::min(std::ceil(collation.idle_ns / rest), kMaxWorkers)) +
              1;
  if (cores > 0) count = std::min(count, cores);
  const Wording fix = LoaderFix(m, {.workers = count});
  finding.fix_cpp = fix.fix_cpp;
  finding.fix_python = fix.fix_python;
  // Replay of a CPU-only run knows no cuts.
  if (!m.has_gpu) return FireBound(std::move(finding), collation.idle_ns);
  return Fire(std::move(finding), std::move(edit), collation.idle_ns);
}

// Per step: the first batches of validation passes.
double OpeningNs(const AnalysisContext& m) {
  double ns = 0;
  for (RowId row : OpeningLoads(m.trace, m.steps.thread)) {
    const Range& load = m.trace.ranges()[row];
    if (!InSteadyStep(m.steps, load.begin_ns)) continue;
    ns += static_cast<double>(load.end_ns - load.begin_ns);
  }
  return ns / static_cast<double>(m.steps.steady.size());
}

std::string SharedCores(const AnalysisContext& m, int cores, const Edit& edit) {
  if (cores <= 0) {
    return "there is a free core for each worker (the number of cores was not "
           "recorded)";
  }
  const int threads =
      edit.threads > 0 ? edit.threads : std::max(1, m.replay.program().threads);
  return Count(cores, "usable core") + ", " +
         Count(edit.workers, "loader worker") + " and " +
         Count(threads, "intra-op thread") + " share them";
}

Verdict CheckSyncDataLoading(const AnalysisContext& m) {
  const Loading waits = FindLoading(m);
  if (!waits.any) return CheckCollation(m);
  const int workers = LoaderWorkers(m.trace);
  if (workers > 0) return Clean();
  if (waits.worker_processes || waits.batches == 0) return Clean();

  const double step = m.step_ns();
  const double data = m.MeanNs(Cause::kData);
  const double per_batch =
      data * static_cast<double>(m.steps.steady.size()) / waits.batches;
  if (per_batch < kInMemoryBatchNs || data * 1e-6 < MinReportableGainMs(m) ||
      m.ShareOfStepsWith(Cause::kData, 0.01 * step) < 2.0 / 3) {
    return Clean();
  }

  Finding finding;
  finding.confidence = workers == 0 ? Confidence::kProven : Confidence::kStrong;
  finding.examples = waits.longest;
  finding.where = LoaderName(m);
  const int cores = CoresForLoading(m);
  const double rest = std::max(step - data, 1.0);
  int count =
      static_cast<int>(std::min(std::ceil(data / rest), kMaxWorkers)) + 1;
  if (cores > 0) count = std::min(count, cores);

  finding.evidence =
      "Batches are made on the training thread: " + Milliseconds(data * 1e-6) +
      " of the " + Milliseconds(step * 1e-6) + " step (" +
      Percent(data / step) + ")" +
      (m.has_gpu ? " pass with the GPU idle." : ".");
  const double opening = OpeningNs(m);
  if (opening >= 0.01 * step) {
    finding.evidence += " " + Milliseconds(opening * 1e-6) +
                        " of it are the first batches of validation passes, "
                        "which no worker has ready.";
  }
  finding.wrong_if =
      "the batches come from a source that cannot be read from another thread";
  const double movable = std::max(0.0, data - opening);

  Found found{.finding = std::move(finding),
              .alternatives = WorkersToTry(m, 1, count),
              .bound_ns = movable,
              .worth = kWorthAWorker,
              .needs_replay = true};
  for (Alternative& alternative : found.alternatives) {
    alternative.wording.assumption = SharedCores(m, cores, alternative.edit);
  }
  found.if_bound = LoaderFix(m, {.workers = count});
  found.if_bound.assumption =
      "at best: all of the loading overlaps with the step, on " +
      Count(count - 1, "free core");
  if (movable * 1e-6 >= MinReportableGainMs(m)) {
    found.if_small.evidence = " A worker would not help here: " +
                              Count(m.replay.program().cores, "core") +
                              " are already kept busy by the intra-op threads.";
  }
  found.if_small.fix_cpp =
      "decode less: smaller files, cached or uint8 tensors";
  found.if_small.fix_python = found.if_small.fix_cpp;
  return Fire(std::move(found));
}

constexpr Rule kRules[] = {
    {.id = "sync-data-loading",
     .question =
         "Are batches made on the training thread while the step waits?",
     .needs = {},
     .check = &CheckSyncDataLoading,
     .reference = "PyTorch Performance Tuning Guide: Enable asynchronous data "
                  "loading and augmentation",
     .detect = "An in-process loader (by its row or its name), or ops that "
               "decode and collate on the training thread only, while the "
               "step waits: 0.2 ms a batch and 1 % of the step or more, in "
               "two thirds of the steps.",
     .avoid = "Loading while the GPU is busy, batches that come from memory, "
              "machines whose cores are taken.",
     .fix_cpp = "torch::data::DataLoaderOptions().workers(N).max_jobs(2 * N)",
     .fix_python = "DataLoader(..., num_workers=N, persistent_workers=True, "
                   "pin_memory=True)"}};

}  // namespace

extern const std::span<const Rule> kDataLoading = kRules;

}  // namespace stepscope
