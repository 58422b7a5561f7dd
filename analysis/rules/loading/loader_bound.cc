// Do the loader's workers deliver batches too slowly, and why? Sources: PyTorch
// Performance Tuning Guide, "Enable asynchronous data loading and
// augmentation"; "17 tips", number 2. Waits count if they take 5 % of the step
// or more, as in torch-tb-profiler and XProf.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/loading.h"
#include "evidence/worker_starts.h"
#include "replay/model/loader.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace loader_bound_rules {
namespace {

constexpr double kWaitShare = 0.05;
constexpr double kPeriodicShare = 0.8;    // of all waiting, on every k-th step
constexpr double kRestart = 10;           // times the usual wait
constexpr double kUsualWaitNs = 100'000;  // the least "usual wait"
constexpr double kRestartShare = 0.01;    // of the step
constexpr double kCoresFull = 0.9;
constexpr double kWorkersIdle = 0.5;
// Two steps that wait may be chance, unless they take most of the time.
constexpr int64_t kLeastBursts = 3;
constexpr double kMostOfTheTime = 0.5;

// The waits of all steps except warm-up, in ns.
struct StepWaits {
  std::vector<double> waits;     // without `openings`
  std::vector<double> openings;  // for the first batches of validation
  std::vector<size_t> steps;     // indices into Steps::windows
  double median_frac = 0;        // of the step
  double mean_ns = 0;
  // True if all waits are about as short as taking a finished batch.
  bool only_hand_over = false;
  double total() const {
    double sum = 0;
    for (double ns : waits) sum += ns;
    return sum;
  }
};

// Returns the waits for the first batches of validation passes, in ns by
// window.
std::vector<double> OpeningWaits(const AnalysisContext& m) {
  std::vector<double> waits(m.steps.windows.size());
  for (RowId row : OpeningLoads(m.trace, m.steps.thread)) {
    const Range& load = m.trace.ranges()[row];
    const size_t step = WindowAt(m.steps, &StepWindow::host, load.begin_ns);
    if (step == m.steps.windows.size()) continue;
    waits[step] += static_cast<double>(load.end_ns - load.begin_ns);
  }
  return waits;
}

StepWaits WaitsOf(const AnalysisContext& m) {
  StepWaits result;
  const std::vector<double> opening = OpeningWaits(m);
  std::vector<double> shares;
  for (size_t i = 0; i < m.steps.windows.size(); ++i) {
    if (m.steps.windows[i].kind == StepKind::kWarmUp) continue;
    const auto all = static_cast<double>(m.splits[i][Cause::kData]);
    result.openings.push_back(std::min(all, opening[i]));
    result.waits.push_back(all - result.openings.back());
    result.steps.push_back(i);
    if (!std::ranges::binary_search(m.steps.steady, i)) continue;
    shares.push_back(result.waits.back() /
                     static_cast<double>(std::max<int64_t>(
                         m.steps.windows[i].tiled.length(), 1)));
    result.mean_ns += result.waits.back();
  }
  result.mean_ns /= static_cast<double>(shares.size());
  result.median_frac = Median(std::move(shares));
  result.only_hand_over = IsHandOver(result.waits);
  return result;
}

// Returns the k for which nearly all waiting falls on every k-th step; 0 if
// there is none. Workers that finish together cause such a period.
size_t WaitPeriod(const StepWaits& waits, int workers) {
  // If the number of workers is known, only that period is tried.
  const size_t from = workers > 1 ? static_cast<size_t>(workers) : 2;
  const size_t most = workers > 1 ? from : 16;
  const double total = waits.total();
  size_t period = 0;  // the longest, because every 4th step is also a 2nd
  for (size_t k = from; k <= most && 2 * k <= waits.waits.size(); ++k) {
    std::vector<double> sums(k);
    size_t large = 0;
    for (size_t i = 0; i < waits.waits.size(); ++i) {
      sums[i % k] += waits.waits[i];
      large += waits.waits[i] > 0.5 * total / waits.waits.size();
    }
    // Long waits must occur in most periods. Rarer waits have other causes.
    if (4 * large * k >= 3 * waits.waits.size() && total > 0 &&
        *std::ranges::max_element(sums) >= kPeriodicShare * total) {
      period = k;
    }
  }
  return period;
}

struct Restarts {
  double lost_ns = 0;  // per step, above the usual wait
  int64_t count = 0;   // steps
};

// Adds up the steps that wait for the first batch of a validation pass.
Restarts FindOpenings(const StepWaits& waits) {
  Restarts openings;
  for (double ns : waits.openings) {
    openings.lost_ns += ns;
    openings.count += ns >= kUsualWaitNs;
  }
  openings.lost_ns /= static_cast<double>(waits.openings.size());
  return openings;
}

// Adds up the steps that wait for restarted workers, without the first step,
// because workers must start once.
Restarts FindRestarts(const AnalysisContext& m, const StepWaits& waits) {
  Restarts restarts;
  if (waits.waits.size() < 3) return restarts;
  const double usual = std::max(Median(waits.waits), kUsualWaitNs);
  if (std::ranges::max(waits.waits) < kRestart * usual) return restarts;
  const std::vector<Span> starts = StartsOfWorkers(m);
  for (size_t i = 1; i < waits.waits.size(); ++i) {
    if (waits.waits[i] < kRestart * usual) continue;
    const Span& step = m.steps.windows[waits.steps[i]].host;
    double lost = MakesIterator(m, step) ? waits.waits[i] : 0;
    for (const Span& start : starts) {
      if (start.end_ns <= step.begin_ns || start.end_ns > step.end_ns) continue;
      // New workers fill their queues, which slows down the whole step.
      lost = std::max(
          {lost, static_cast<double>(start.length()),
           static_cast<double>(step.length()) - m.usual.length_ns + usual});
    }
    if (lost <= usual) continue;
    restarts.lost_ns += lost - usual;
    ++restarts.count;
  }
  restarts.lost_ns /= static_cast<double>(waits.waits.size());
  return restarts;
}

// What the operating system measured over the steady steps.
struct Load {
  double busy_cores = -1;   // by this process and its workers
  double worker_frac = -1;  // share of the time that workers compute
  double read_bytes = 0;    // per step
};

Load LoadOf(const AnalysisContext& m, int workers) {
  Load load;
  const bool processes = WorkersAreProcesses(m.trace);
  double wall = 0, cpu = 0, worker_cpu = 0, count = 0;
  for (const HostUsage& usage : m.trace.host_usage()) {
    if (usage.end_ns <= usage.begin_ns || usage.process_cpu_ns < 0) continue;
    wall += static_cast<double>(usage.end_ns - usage.begin_ns);
    cpu += static_cast<double>(usage.process_cpu_ns);
    if (usage.loader_cpu_ns > 0) {
      worker_cpu += static_cast<double>(usage.loader_cpu_ns);
    }
    load.read_bytes += static_cast<double>(
        std::max<int64_t>({usage.loader_read_bytes, usage.read_bytes, 0}));
    ++count;
  }
  if (count == 0 || wall <= 0) return load;
  // Workers that are threads are already counted with the process.
  load.busy_cores = (cpu + (processes ? worker_cpu : 0)) / wall;
  if (worker_cpu > 0 && workers > 0) {
    load.worker_frac = worker_cpu / (workers * wall);
  }
  load.read_bytes /= count;
  return load;
}

constexpr const char* kCheaper =
    "make batches cheaper to produce: cache decoded images, use smaller files, "
    "apply fewer transforms on the CPU";

// True if the number of cores matters but is unknown. On a CPU, workers and
// training share the cores, and without a free core more workers gain nothing.
bool CoresUnknown(const AnalysisContext& m) {
  return !m.has_gpu && CoresForLoading(m) <= 0;
}

std::string AtBest(const AnalysisContext& m) {
  return std::string("at best: the step never waits for a batch") +
         (CoresUnknown(m) ? "; the number of cores was not recorded, and "
                            "without a free one more workers gain nothing "
                            "unless they wait for storage (--cores N)"
                          : "");
}

Finding Describe(const AnalysisContext& m, const Loading& loading, int workers,
                 const StepWaits& waits) {
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples = loading.longest;
  finding.where = LoaderName(m);
  finding.evidence =
      "The training thread waits " + Milliseconds(waits.mean_ns * 1e-6) +
      " of the " + Milliseconds(m.stats.mean_ms) + " step (" +
      Percent(waits.mean_ns / m.step_ns()) + ") for batches from " +
      (workers > 0 ? Count(workers, "worker") : std::string("the workers")) +
      ".";
  finding.wrong_if = "the waits stop once the workers have warmed up";
  return finding;
}

// Returns "5 steps of 40 begin ..., which costs 12 ms per step on average."
std::string CostOf(const Restarts& restarts, const StepWaits& waits,
                   const std::string& what) {
  return Count(restarts.count, "step") + " of " +
         std::to_string(waits.waits.size()) +
         (restarts.count == 1 ? " begins " : " begin ") + what +
         ", which costs " + Milliseconds(restarts.lost_ns * 1e-6) +
         " per step on average.";
}

// The gain refers to the mean of all steps except warm-up, because these waits
// turn steps into outliers, and the mean steady step leaves outliers out.
Verdict FireStall(const AnalysisContext& m, Finding finding, double ns) {
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = ns,
                    .baseline_ms = m.gain_step_ms(m.stats.all_mean_ms)});
}

Verdict FireRestarts(const AnalysisContext& m, const Loading& loading,
                     int workers, const StepWaits& waits,
                     const Restarts& restarts) {
  Finding finding = Describe(m, loading, workers, waits);
  finding.evidence +=
      " " + CostOf(restarts, waits, "with a restart of the workers");
  finding.assumption =
      restarts.count > 1
          ? "every epoch is as long as in this recording"
          : "an epoch is " +
                Count(static_cast<int64_t>(waits.waits.size()), "step") +
                " long; the recording shows one start only";
  if (restarts.count == 1) finding.confidence = Confidence::kHint;
  finding.fix_cpp =
      "keep one DataLoader for all epochs, so that its threads stay alive";
  finding.fix_python = "DataLoader(..., persistent_workers=True)";
  return FireStall(m, std::move(finding), restarts.lost_ns);
}

Verdict FireOpenings(const AnalysisContext& m, const StepWaits& waits,
                     const Restarts& openings) {
  Finding finding;
  finding.confidence = Confidence::kStrong;
  // samples/ladder recognises this case by the words "no batch ready".
  finding.evidence = CostOf(openings, waits, "validation with no batch ready");
  finding.where = "validate";
  finding.assumption = "validation is as frequent as in this recording";
  finding.fix_cpp =
      "keep the validation batches in memory, or request the first one before "
      "the last training step; validate less often";
  finding.fix_python =
      "keep the validation batches in memory, or call iter(loader) before the "
      "last training step; validate less often";
  finding.wrong_if = "the waits stop once the workers have warmed up";
  for (RowId row : OpeningLoads(m.trace, m.steps.thread)) {
    if (finding.examples.size() == 3) break;
    const Range& load = m.trace.ranges()[row];
    finding.examples.push_back(
        {-1, load.begin_ns, load.end_ns, std::string(m.trace.name(load.name))});
  }
  return FireStall(m, std::move(finding), openings.lost_ns);
}

// Waits in some steps, when neither the median step nor every k-th step waits.
struct Bursts {
  double lost_ns = 0;  // per step except warm-up
  int64_t count = 0;   // steps that wait longer than the mean
};

Bursts FindBursts(const StepWaits& waits) {
  Bursts bursts;
  if (waits.waits.empty()) return bursts;
  bursts.lost_ns = waits.total() / static_cast<double>(waits.waits.size());
  for (double ns : waits.waits) bursts.count += ns > bursts.lost_ns;
  return bursts;
}

// True if batches come in bursts. They are then prepared elsewhere, even if the
// number of workers is unknown, because a batch that the training thread makes
// itself takes time in every step.
bool InBursts(const AnalysisContext& m, const Bursts& bursts) {
  const double all_ns = m.stats.all_mean_ms * 1e6;
  return bursts.lost_ns >= kWaitShare * all_ns &&
         (bursts.count >= kLeastBursts ||
          (bursts.count == 2 && bursts.lost_ns >= kMostOfTheTime * all_ns)) &&
         m.ShareOfStepsWith(Cause::kData, 0.01 * m.step_ns()) < kMostSteps;
}

// Suggests a longer queue: at least 4 batches, twice DataLoader's default.
std::string LongerQueue(const AnalysisContext& m) {
  const int now = LoaderBatchesAhead(m.trace);
  return "; try prefetch_factor=" + std::to_string(std::max(4, 2 * now)) +
         (now > 0 ? " (now " + std::to_string(now) + ")" : "");
}

Verdict FireBursts(const AnalysisContext& m, const Loading& loading,
                   int workers, const StepWaits& waits, const Bursts& bursts) {
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples = loading.longest;
  finding.where = LoaderName(m);
  finding.evidence =
      "The training thread waits for batches in " +
      Count(bursts.count, "step") + " of " +
      std::to_string(waits.waits.size()) +
      " and hardly at all in the others: " +
      Milliseconds(bursts.lost_ns * 1e-6) + " of the " +
      Milliseconds(m.stats.all_mean_ms) + " step on average (" +
      Percent(bursts.lost_ns / (m.stats.all_mean_ms * 1e6)) +
      "). So the batches are made elsewhere, but in bursts and too slowly.";
  if (CoresUnknown(m) || bursts.count < kLeastBursts) {
    finding.confidence = Confidence::kHint;
  }
  finding.assumption = AtBest(m);
  const Wording fix = LoaderFix(m, {.workers = std::max(workers, 1) + 1});
  finding.fix_cpp = (workers > 0 ? fix.fix_cpp : "more workers") +
                    "; use a longer queue, or " + kCheaper;
  finding.fix_python = (workers > 0 ? fix.fix_python : "a larger num_workers") +
                       LongerQueue(m) + ", or " + kCheaper;
  finding.wrong_if = "these steps begin an epoch or wait for storage once";
  return FireStall(m, std::move(finding), bursts.lost_ns);
}

// What the finding says if no core is free for another worker.
Wording CoresFull() {
  return {.evidence = " All cores are busy, so more workers cannot help.",
          .fix_cpp = kCheaper,
          .fix_python = kCheaper};
}

Verdict CheckLoaderBound(const AnalysisContext& m) {
  const Loading loading = FindLoading(m);
  if (!loading.any) return Skip(kNoLoader);
  const int workers = LoaderWorkers(m.trace);
  // sync-data-loading reports batches that the training thread makes itself.
  if (workers == 0) return Clean();
  StepWaits waits = WaitsOf(m);
  const Bursts bursts = FindBursts(waits);
  const bool in_bursts = InBursts(m, bursts);
  if (workers < 0 && !loading.worker_processes) {
    return in_bursts ? FireBursts(m, loading, workers, waits, bursts) : Clean();
  }
  const Restarts restarts = FindRestarts(m, waits);
  if (restarts.lost_ns > waits.mean_ns &&
      restarts.lost_ns >= kRestartShare * m.stats.all_mean_ms * 1e6) {
    return FireRestarts(m, loading, workers, waits, restarts);
  }
  const bool often = waits.median_frac >= kWaitShare;
  const size_t period = often ? 0 : WaitPeriod(waits, workers);
  if (period > 0) {  // over all steps: waiting steps may be outliers
    waits.mean_ns = waits.total() / static_cast<double>(waits.waits.size());
  }
  const bool periodic = period > 0 && waits.mean_ns >= kWaitShare * m.step_ns();
  if (!often && !periodic) {
    const Restarts openings = FindOpenings(waits);
    const bool opens = openings.lost_ns > restarts.lost_ns;
    const double lost_ns = opens ? openings.lost_ns : restarts.lost_ns;
    if (in_bursts && bursts.lost_ns > 2 * lost_ns) {
      return FireBursts(m, loading, workers, waits, bursts);
    }
    if (lost_ns < kRestartShare * m.stats.all_mean_ms * 1e6 ||
        lost_ns * 1e-6 < 0.1) {
      return Clean();
    }
    return opens ? FireOpenings(m, waits, openings)
                 : FireRestarts(m, loading, workers, waits, restarts);
  }
  if (waits.mean_ns * 1e-6 < MinReportableGainMs(m)) return Clean();

  Finding finding = Describe(m, loading, workers, waits);
  if (CoresUnknown(m)) finding.confidence = Confidence::kHint;
  const bool late = periodic || !waits.only_hand_over;
  if (!late) {
    finding.evidence +=
        " All waits are about equal and below 2 ms, which is what taking a "
        "finished batch from a worker process takes.";
  }
  if (periodic) {
    finding.evidence += " Nearly all of it falls on every " +
                        std::to_string(period) +
                        "th step: the workers finish together.";
  }
  const int cores = CoresForLoading(m);
  const Load load = LoadOf(m, workers);
  const bool reading = load.worker_frac >= 0 &&
                       load.worker_frac < kWorkersIdle && load.read_bytes > 0;
  if (reading) {
    finding.evidence += " The workers compute for " +
                        Percent(load.worker_frac) + " of their time and read " +
                        Bytes(load.read_bytes) +
                        " per step: storage limits them.";
  }
  const double step = m.step_ns();
  const int now = std::max(workers, 1);
  const int wanted = static_cast<int>(
      std::min(std::ceil(now * step / std::max(step - waits.mean_ns, 1.0)),
               kMaxWorkers));
  const int most = cores > 0 ? std::min(wanted + 1, cores) : wanted + 1;
  Found found{
      .finding = std::move(finding),
      .bound_ns = waits.mean_ns,
      .worth = kWorthAWorker,
      .needs_replay = true,
      .if_small = CoresFull(),
      .at_most = late ? FindingSeverity::kCritical : FindingSeverity::kLow};
  if (!m.has_gpu && m.replay.program().batch_cpu_ns > 0) {
    found.alternatives = WorkersToTry(m, now + 1, std::max(most, now + 1));
  }
  for (Alternative& alternative : found.alternatives) {
    alternative.wording.assumption =
        "the " + Count(cores, "usable core") +
        " can do the extra work, and storage keeps up";
  }
  if (cores > 0 && load.busy_cores >= kCoresFull * m.trace.run().usable_cores) {
    found.if_bound = CoresFull();
  } else {
    found.if_bound = LoaderFix(m, {.workers = std::max(most, now + 1)});
    const char* storage =
        reading ? "; use larger sequential files, or cache the data in memory"
                : "";
    if (periodic) {
      found.if_bound.fix_cpp += "; use a longer queue: max_jobs(4 * workers)";
    }
    found.if_bound.fix_cpp += storage;
    found.if_bound.fix_python += LongerQueue(m);
    found.if_bound.fix_python += storage;
  }
  if (!late) {
    found.if_bound.fix_cpp = found.if_bound.fix_python =
        "hand over fewer and larger batches, or fewer tensors in each";
  }
  found.if_bound.assumption = AtBest(m);
  return Fire(std::move(found));
}

constexpr Rule kRules[] = {
    {.id = "loader-bound",
     .question = "Do the loader's workers deliver batches too slowly?",
     .needs = {Kind::kRange},
     .causes = {Cause::kData},
     .check = &CheckLoaderBound,
     .reference = "PyTorch Performance Tuning Guide: Enable asynchronous data "
                  "loading and augmentation",
     .detect =
         "the median wait is 5 % of the step or more (the same bound as in "
         "torch-tb-profiler and XProf); or waits are 5 % of the step on "
         "average, nearly all of them in every k-th step, or in at least three "
         "but less than two thirds of the steps; or waits of 10 times "
         "the median for restarted workers, or waits for the first batch of a "
         "validation pass, are 1 % of the step on average. Equal waits below "
         "2 ms are what taking a finished batch takes: they are low. On a CPU "
         "it is a hint where the number of cores is unknown",
     .avoid = "the GPU is busy during the waits, only the first batch is late, "
              "or the training thread makes the batches (sync-data-loading)",
     .fix_cpp = "more workers and a longer queue; cheaper or cached batches "
                "where all cores are busy",
     .fix_python = "num_workers, prefetch_factor, persistent_workers; cheaper "
                   "or cached batches where all cores are busy"}};

}  // namespace
}  // namespace loader_bound_rules

extern const std::span<const Rule> kLoaderBound = loader_bound_rules::kRules;

}  // namespace stepscope
