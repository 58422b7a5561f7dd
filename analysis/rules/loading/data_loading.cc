// Does the training thread make batches itself while the step waits? Sources:
// PyTorch Performance Tuning Guide, "Enable asynchronous data loading and
// augmentation"; the ResNet-18 case study, step 1.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/loading.h"
#include "evidence/program/op_shapes.h"
#include "evidence/recording_load.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "replay/model/loader.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace data_loading_rules {
namespace {

// A batch that takes less time comes from memory, so a worker would not help.
constexpr double kInMemoryBatchNs = 200'000;
constexpr double kFetchNs = 50'000;   // taking a batch from a worker
constexpr int64_t kManySamples = 16;  // one by one
// The most time per sample, as recorded, if only one or two ops make it.
// Reading or decoding a sample takes longer.
constexpr int64_t kMakingNs = 20'000;
// If recording lengthens the loading by this factor, the evidence says so,
// because the gain may then exceed the time without recording. Our own choice.
constexpr double kMuchMore = 1.2;
// An op that takes this share of the loading is named. Our own choice.
constexpr double kMostOfALoad = 0.25;

bool IsWorthAWorker(const AnalysisContext& m, const Collation& made) {
  return made.steps_frac >= kMostSteps && made.idle_ns >= kInMemoryBatchNs &&
         made.idle_ns * 1e-6 >= MinReportableGainMs(m);
}

// False if the intra-op threads are known to use all cores.
bool HasFreeCore(const AnalysisContext& m) {
  const int cores = CoresForLoading(m);
  return m.has_gpu || cores <= 0 || m.replay.program().threads < cores;
}

// Checks a run without loader ranges, whose training thread collates batches,
// or prepares them with other ops before the model. A loop that reads its
// dataset itself looks like this.
Verdict CheckCollation(const AnalysisContext& m) {
  Collation collation = FindCollation(m);
  const bool collates = IsWorthAWorker(m, collation);
  if (!collates && !HasFreeCore(m)) return Skip(kNoLoader);
  if (!collates) collation = FindPreparation(m);
  if (!collates && !IsWorthAWorker(m, collation)) return Skip(kNoLoader);
  const double step = m.step_ns();
  Finding finding;
  // Ops that need nothing from the model need not be for a batch, so only a
  // hint.
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
                              "samples. ")
                : std::string("Before the model runs, the training thread "
                              "prepares the batch, by ops that involve neither "
                              "weights nor gradients. ")) +
      (m.has_gpu ? "The GPU is idle because of that for " : "This takes ") +
      Milliseconds(collation.idle_ns * 1e-6) + " of the " +
      Milliseconds(step * 1e-6) + " step (" +
      Percent(collation.idle_ns / step) + ").";
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
    // Only one worker surely has a core, and it makes a batch in the same time.
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
  if (!collates) {
    constexpr char kOnce[] =
        "; what is the same in each step, such as the matrix of a graph, can "
        "be made once, before the loop";
    finding.fix_cpp += kOnce;
    finding.fix_python += kOnce;
  }
  // The replay of a CPU-only run cannot shorten an arbitrary span of a thread.
  if (!m.has_gpu) {
    // Ops on whole batches may keep all cores busy, just as the model does.
    const bool shows_little = !collates && cores <= 0;
    return Fire(Found{.finding = std::move(finding),
                      .bound_ns = bound_ns,
                      .at_most = shows_little ? FindingSeverity::kLow
                                              : FindingSeverity::kCritical});
  }
  return Fire(std::move(finding), std::move(edit), collation.idle_ns);
}

// Returns the time per step for loading the first batches of validation passes.
// Workers cannot prepare these batches, because each pass creates its workers
// only when it begins.
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

// How an in-process loader takes its samples.
struct Picks {
  // Picks per tensor of a batch, from tensors in memory or from Python numbers:
  // 1 if all samples are picked at once. 0 if ops do more than pick samples and
  // stack them.
  int64_t count = 0;
  bool from_numbers = false;
  // True if the loader does almost nothing else: ops take most of its time, or
  // each sample takes little time.
  bool only = false;
};
Picks PicksFromMemory(const AnalysisContext& m) {
  const std::vector<Span> loads = LoaderSpans(m.trace, m.steps.thread);
  int64_t picks = 0, tensors = 0, lists = 0, ops_ns = 0, loads_ns = 0;
  for (const Span& load : loads) {
    if (InSteadyStep(m.steps, load.begin_ns)) loads_ns += load.length();
  }
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (!Covers(loads, op.begin_ns) || !InSteadyStep(m.steps, op.begin_ns)) {
      continue;
    }
    const std::string_view name = PlainNameOf(m.trace, row);
    const bool indexes = IsAnyOf(name, {"index", "index_select"});
    if (op.parent == kNone) ops_ns += op.end_ns - op.begin_ns;
    picks += indexes || name == "select";
    tensors += indexes || name == "stack";
    lists += name == "lift_fresh";
    // Allow the ops that these call, and those of the sampler's shuffling.
    if (!indexes && name != "stack" && !m.tree.traits(row).bookkeeping &&
        !IsAnyOf(name, {"cat", "copy", "randperm", "random", "item",
                        "_local_scalar_dense", "scalar_tensor"})) {
      return {};
    }
  }
  if (tensors == 0) return {};
  // torch.tensor() of a list makes the indices of a batch, or its values.
  const bool from_numbers = lists > tensors;
  const int64_t made = from_numbers ? picks + lists : picks;
  if (made == 0) return {};
  return {.count = std::max<int64_t>(1, made / tensors),
          .from_numbers = from_numbers,
          .only = 2 * ops_ns > loads_ns ||
                  (from_numbers && loads_ns < kMakingNs * made)};
}

// Time per step that the loader takes on the training thread of a CPU-only run:
// as recorded, and the most it can be without the recorder, which adds most if
// ops are many and small.
struct LoaderTime {
  double recorded_ns = 0, most_ns = 0;
};
LoaderTime MeasureLoader(const AnalysisContext& m) {
  double ns = 0, events = 0;
  for (const Span& load : LoaderSpans(m.trace, m.steps.thread)) {
    if (!InSteadyStep(m.steps, load.begin_ns)) continue;
    ns += static_cast<double>(load.length());
    events +=
        static_cast<double>(m.tree.of_thread(m.steps.thread, load).size());
  }
  const double steps = static_cast<double>(m.steps.steady.size());
  return {ns / steps, LargestUnrecordedNs(m, ns / steps, events / steps)};
}

// Reports samples that are already in memory, for which no worker is needed.
Verdict FireFromMemory(Finding finding, const Picks& picks, double bound_ns) {
  finding.confidence = Confidence::kStrong;
  finding.evidence +=
      (picks.from_numbers ? " It makes " : " It takes ") +
      std::to_string(picks.count) + " samples one by one from " +
      (picks.from_numbers ? "Python numbers" : "tensors in memory") +
      ", and stacks them.";
  finding.assumption = "at best: indexing the tensors once takes no time";
  constexpr char kPython[] =
      "take a whole batch with one indexing operation: DataLoader(dataset, "
      "batch_size=None, sampler=BatchSampler(RandomSampler(dataset), "
      "batch_size, drop_last)), "
      "or a loop over torch.randperm(n).split(batch_size)";
  constexpr char kCpp[] =
      "take a whole batch with one indexing operation: override get_batch() "
      "of a torch::data::datasets::BatchDataset with data.index_select(0, "
      "indices)";
  const std::string first =
      picks.from_numbers
          ? "make tensors of all samples once, before training; then "
          : "";
  finding.fix_python = first + kPython;
  finding.fix_cpp = first + kCpp;
  finding.wrong_if =
      picks.from_numbers
          ? "the samples do not fit into memory, or differ from epoch to epoch"
          : "samples are changed one by one before they are stacked";
  return FireBound(std::move(finding), bound_ns);
}

// Returns the line of the program that runs most often in the middle of loads,
// judged by their tenths; "" without stacks.
std::string LongestLine(const AnalysisContext& m) {
  constexpr int64_t kSamples = 10;
  const CallSites sites(m.trace);
  std::map<std::string, int64_t> lines;
  for (const Span& load : LoaderSpans(m.trace, m.steps.thread)) {
    if (!InSteadyStep(m.steps, load.begin_ns)) continue;
    for (int64_t i = 0; i < kSamples; ++i) {
      const int64_t at_ns =
          load.begin_ns + (2 * i + 1) * load.length() / (2 * kSamples);
      lines[sites.Source(m.steps.thread, at_ns, kNone)] += load.length();
    }
  }
  lines.erase("");
  if (lines.empty()) return "";
  return std::ranges::max_element(lines, {},
                                  [](const auto& line) { return line.second; })
      ->first;
}

// Names the op that takes most of the loads on the training thread, without
// the ops inside it, if it takes kMostOfALoad of `data_ns`. "" if none does.
std::string LongestOpInWords(const AnalysisContext& m, double data_ns) {
  struct Sum {
    int64_t ns = 0;
    int64_t calls = 0;
  };
  std::map<NameId, Sum> sums;
  for (const Span& load : LoaderSpans(m.trace, m.steps.thread)) {
    if (!InSteadyStep(m.steps, load.begin_ns)) continue;
    for (RowId row : m.tree.of_thread(m.steps.thread, load)) {
      const Op& op = m.trace.ops()[row];
      Sum& own = sums[op.name];
      own.ns += op.end_ns - op.begin_ns;
      ++own.calls;
      if (op.parent != kNone) {
        sums[m.trace.ops()[op.parent].name].ns -= op.end_ns - op.begin_ns;
      }
    }
  }
  const auto longest = std::ranges::max_element(
      sums, {}, [](const auto& one) { return one.second.ns; });
  if (longest == sums.end()) return "";
  const auto steps = static_cast<double>(m.steps.steady.size());
  const double ns = static_cast<double>(longest->second.ns) / steps;
  if (ns < kMostOfALoad * data_ns) return "";
  return " " + std::string(m.trace.name(longest->first)) + " alone takes " +
         Milliseconds(ns * 1e-6) + " of that (" +
         MeanCount(static_cast<double>(longest->second.calls) / steps, "call") +
         " per step): compute once what is the same for all samples.";
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
      m.ShareOfStepsWith(Cause::kData, 0.01 * step) < kMostSteps) {
    return Clean();
  }

  Finding finding;
  finding.confidence = workers == 0 ? Confidence::kProven : Confidence::kStrong;
  finding.examples = waits.longest;
  finding.where = LoaderName(m);
  if (finding.where.empty()) finding.where = LongestLine(m);
  const int cores = CoresForLoading(m);
  const double rest = std::max(step - data, 1.0);
  int count =
      static_cast<int>(std::min(std::ceil(data / rest), kMaxWorkers)) + 1;
  if (cores > 0) count = std::min(count, cores);

  finding.evidence =
      std::string("The training thread makes the batches itself. ") +
      (m.has_gpu ? "The GPU is idle because of that for " : "This takes ") +
      Milliseconds(data * 1e-6) + " of the " + Milliseconds(step * 1e-6) +
      " step (" + Percent(data / step) + ")." + LongestOpInWords(m, data);
  const double opening = OpeningNs(m);
  if (opening >= 0.01 * step) {
    finding.evidence += " " + Milliseconds(opening * 1e-6) +
                        " of that loads the first batches of validation "
                        "passes, which no worker can prepare.";
  }
  finding.wrong_if =
      "the batches come from a source that another thread cannot read";
  double largest = data;
  if (!m.has_gpu) {
    const LoaderTime loader = MeasureLoader(m);
    largest = std::max(largest, loader.most_ns);
    if (loader.recorded_ns >= kMuchMore * data) {
      finding.evidence += " Including the cost of recording, it takes " +
                          Milliseconds(loader.recorded_ns * 1e-6) + ".";
    }
  }
  const double movable = std::max(0.0, largest - opening);
  const Picks picks = PicksFromMemory(m);
  if (picks.count >= kManySamples && picks.only) {
    return FireFromMemory(std::move(finding), picks, largest);
  }

  // On a CPU, a worker gains something only if a core is free.
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
              .needs_replay = true,
              // A worker would make another copy of data that is in memory.
              .at_most = picks.count == 1 ? FindingSeverity::kLow
                                          : FindingSeverity::kCritical};
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
              "cores, findings about other ops before the model have low "
              "severity",
     .fix_cpp = "torch::data::DataLoaderOptions().workers(N).max_jobs(2 * N)",
     .fix_python = "DataLoader(..., num_workers=N, persistent_workers=True, "
                   "pin_memory=True)",
     .change = "batches made by a worker"}};

}  // namespace
}  // namespace data_loading_rules

extern const std::span<const Rule> kDataLoading = data_loading_rules::kRules;

}  // namespace stepscope
