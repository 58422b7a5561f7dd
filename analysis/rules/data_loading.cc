// Does the training thread make batches itself while the step waits?
// Sources: PyTorch Performance Tuning Guide, "Enable asynchronous data loading
// and augmentation"; the ResNet-18 case study, step 1.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/loading.h"
#include "replay/model/loader.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace data_loading_rules {
namespace {

// A batch that takes less comes from memory, and a worker would not help.
constexpr double kInMemoryBatchNs = 200'000;
constexpr double kMostSteps = 2.0 / 3;
constexpr double kFetchNs = 50'000;  // to take a batch from a worker

bool IsWorthAWorker(const AnalysisContext& m, const Collation& made) {
  return made.steps_frac >= kMostSteps && made.idle_ns >= kInMemoryBatchNs &&
         made.idle_ns * 1e-6 >= MinReportableGainMs(m);
}

// False if the intra-op threads are known to have all cores.
bool HasFreeCore(const AnalysisContext& m) {
  const int cores = CoresForLoading(m);
  return m.has_gpu || cores <= 0 || m.replay.program().threads < cores;
}

// The trace shows no loader, but the training thread collates batches, or
// prepares them by other ops before the model: a loop that reads its dataset
// itself looks like this.
Verdict CheckCollation(const AnalysisContext& m) {
  Collation collation = FindCollation(m);
  const bool collates = IsWorthAWorker(m, collation);
  if (!collates && !HasFreeCore(m)) return Skip(kNoLoader);
  if (!collates) collation = FindPreparation(m);
  if (!collates && !IsWorthAWorker(m, collation)) return Skip(kNoLoader);
  const double step = m.step_ns();
  Finding finding;
  // That ops need nothing of the model does not show what they are for.
  finding.confidence = collates ? Confidence::kStrong : Confidence::kHint;
  Edit edit;
  for (const Span& batch : collation.spans) {
    edit.cuts.push_back({m.steps.thread, batch, kFetchNs});
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {-1, batch.begin_ns, batch.end_ns,
           collates ? "decoding and collating" : "preparing a batch"});
    }
  }
  finding.evidence =
      (collates ? std::string("Only the training thread decodes and collates "
                              "samples. This takes ")
                : std::string("Before the model runs, the training thread "
                              "prepares the batch, by ops that involve neither "
                              "weights nor gradients. This takes ")) +
      Milliseconds(collation.idle_ns * 1e-6) + " of the " +
      Milliseconds(step * 1e-6) + " step (" +
      Percent(collation.idle_ns / step) + ")" +
      (m.has_gpu ? ", during which the GPU is idle." : ".");
  finding.where = collates
                      ? "ops that stack samples or cast bytes, before the model"
                      : "ops before the model";
  finding.assumption = "each worker has a free core";
  finding.wrong_if =
      "these ops are part of the model, or the batches cannot be made on "
      "another thread";
  const double rest = std::max(step - collation.idle_ns, 1.0);
  const int cores = CoresForLoading(m);
  double bound_ns = collation.idle_ns;
  if (cores <= 0 && !m.has_gpu) {
    // The one worker that surely has a core makes a batch in no less time.
    bound_ns = std::min(bound_ns, rest);
    finding.confidence = Confidence::kHint;
    finding.assumption =
        "one worker has a free core; the number of cores was not recorded "
        "(--cores N)";
  }
  int count = static_cast<int>(
                  std::min(std::ceil(collation.idle_ns / rest), kMaxWorkers)) +
              1;
  if (cores > 0) count = std::min(count, cores);
  const Wording fix = LoaderFix(m, {.workers = count});
  finding.fix_cpp = fix.fix_cpp;
  finding.fix_python = fix.fix_python;
  // Replay of a CPU-only run cannot shorten a span of a thread.
  if (!m.has_gpu) {
    // Ops on whole batches may keep all cores busy, as the model does.
    const bool shows_little = !collates && cores <= 0;
    return Fire(Found{.finding = std::move(finding),
                      .bound_ns = bound_ns,
                      .at_most = shows_little ? FindingSeverity::kLow
                                              : FindingSeverity::kCritical});
  }
  return Fire(std::move(finding), std::move(edit), collation.idle_ns);
}

// The time per step to load the first batches of validation passes. No worker
// can prepare these, because the pass creates its workers when it begins.
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
  if (cores <= 0) return "each worker has a free core";
  if (m.has_gpu) {
    return Count(cores, "usable core") +
           ", shared by the launching thread and " +
           Count(edit.workers, "loader worker");
  }
  const int threads =
      edit.threads > 0 ? edit.threads : std::max(1, m.replay.program().threads);
  return Count(cores, "usable core") + ", " +
         Count(edit.workers, "loader worker") + " and " +
         Count(threads, "intra-op thread") + " share the cores";
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
      "The training thread makes the batches itself. This takes " +
      Milliseconds(data * 1e-6) + " of the " + Milliseconds(step * 1e-6) +
      " step (" + Percent(data / step) + ")" +
      (m.has_gpu ? ", during which the GPU is idle." : ".");
  const double opening = OpeningNs(m);
  if (opening >= 0.01 * step) {
    finding.evidence += " " + Milliseconds(opening * 1e-6) +
                        " of that loads the first batches of validation "
                        "passes, which no worker can prepare.";
  }
  finding.wrong_if =
      "the batches come from a source that another thread cannot read";
  const double movable = std::max(0.0, data - opening);

  // On a CPU a worker gains nothing unless a core is free.
  const bool cores_unknown = cores <= 0 && !m.has_gpu;
  if (cores_unknown) {
    finding.confidence = Confidence::kHint;
    finding.settings = {{"workers", int64_t{count}}};
  }
  Found found{.finding = std::move(finding),
              .alternatives = cores_unknown ? std::vector<Alternative>()
                                            : WorkersToTry(m, 1, count),
              .bound_ns = movable,
              .worth = kWorthAWorker,
              .needs_replay = true};
  for (Alternative& alternative : found.alternatives) {
    alternative.wording.assumption = SharedCores(m, cores, alternative.edit);
  }
  found.if_bound = LoaderFix(m, {.workers = count});
  found.if_bound.assumption =
      "at best, all of the loading overlaps with the step, on " +
      Count(count - 1, "free core") +
      (cores_unknown ? "; the number of cores was not recorded, and without a "
                       "free one a worker gains nothing (--cores N settles it)"
                     : "");
  if (movable * 1e-6 >= MinReportableGainMs(m)) {
    found.if_small.evidence =
        m.has_gpu ? " A worker would not help here: something else limits the "
                    "step."
                  : " A worker would not help here: the intra-op threads "
                    "already keep " +
                        Count(m.replay.program().cores, "core") + " busy.";
  }
  found.if_small.fix_cpp =
      "decode less: use smaller files, cached tensors or uint8 tensors";
  found.if_small.fix_python = found.if_small.fix_cpp;
  return Fire(std::move(found));
}

constexpr Rule kRules[] = {
    {.id = "sync-data-loading",
     .question =
         "Does the training thread make batches itself while the step waits?",
     .needs = {},
     .causes = {Cause::kData},
     .check = &CheckSyncDataLoading,
     .reference = "PyTorch Performance Tuning Guide: Enable asynchronous data "
                  "loading and augmentation",
     .detect = "the step waits at least 0.2 ms per batch and 1 % of the step, "
               "in two thirds of the steps, for an in-process loader (known "
               "from its settings or its name) or for ops that decode and "
               "collate on the training thread only; on a CPU also for other "
               "ops before the model, which involve neither weights nor "
               "gradients",
     .avoid = "the GPU is busy during loading, the batches come from memory "
              "(ops that only choose samples from tensors do not count), or no "
              "core is free for a worker. On a CPU with an unknown number of "
              "cores, other ops before the model are low",
     .fix_cpp = "torch::data::DataLoaderOptions().workers(N).max_jobs(2 * N)",
     .fix_python = "DataLoader(..., num_workers=N, persistent_workers=True, "
                   "pin_memory=True)",
     .change = "batches made by a worker"}};

}  // namespace
}  // namespace data_loading_rules

extern const std::span<const Rule> kDataLoading = data_loading_rules::kRules;

}  // namespace stepscope
