// Is the step waiting for its input?
// Sources: PyTorch Performance Tuning Guide, "Enable asynchronous data loading
// and augmentation"; the ResNet-18 case study, step 1. The 5 % bound on waits
// is where torch-tb-profiler and XProf start, too.
#include <algorithm>
#include <cmath>
#include <string>

#include "report/words.h"
#include "rule.h"

namespace stepscope {
namespace {

constexpr double kInMemoryBatchNs = 200'000;
constexpr double kWaitShare = 0.05;
constexpr int kWorkersToTry = 32;
constexpr double kMostWorkers = 256;

struct Waits {
  std::vector<Example> longest;  // at most 3
  int64_t batches = 0;           // in the steady steps
  bool any = false;              // at all
};

Waits FindWaits(const Measured& m) {
  Waits waits;
  const bool named = std::ranges::any_of(
      m.trace.ranges(),
      [](const Range& range) { return range.kind == RangeKind::kLoader; });
  for (const Range& range : m.trace.ranges()) {
    if (range.thread != m.steps.thread) continue;
    const bool phase = !named && range.kind == RangeKind::kPhase &&
                       m.trace.name(range.name) == "data";
    if (range.kind != RangeKind::kLoader && !phase) continue;
    waits.any = true;
    for (size_t i : m.steps.steady) {
      const StepWindow& step = m.steps.windows[i];
      if (range.begin_ns < step.host.begin_ns ||
          range.begin_ns >= step.host.end_ns) {
        continue;
      }
      ++waits.batches;
      waits.longest.push_back({step.number, range.begin_ns, range.end_ns,
                               std::string(m.trace.name(range.name))});
    }
  }
  std::ranges::stable_sort(waits.longest, std::greater(), [](const Example& e) {
    return e.end_ns - e.begin_ns;
  });
  if (waits.longest.size() > 3) waits.longest.resize(3);
  return waits;
}

// "loader train", if the loop named one.
std::string LoaderName(const Measured& m) {
  for (const Loader& loader : m.trace.loaders()) {
    if (loader.name != 0) {
      return "loader \"" + std::string(m.trace.name(loader.name)) + "\"";
    }
  }
  return "";
}

// The workers to try, and with them fewer intra-op threads where both do not
// fit on the cores. The best comes first.
std::vector<Edit> WorkerEdits(const Measured& m, int from, int most) {
  const CpuProgram& program = m.replay.program();
  std::vector<Edit> edits;
  most = std::min(most, from + kWorkersToTry);
  for (int workers = from; workers <= most; ++workers) {
    edits.push_back({.workers = workers});
    const int left = program.cores - workers;
    if (program.threads > 1 && left >= 1 && left < program.threads) {
      edits.push_back({.workers = workers, .threads = left});
    }
  }
  // A later one must be better by 1 % to be worth its worker.
  size_t best = 0;
  for (size_t i = 1; i < edits.size(); ++i) {
    if (m.replay.StepNs(edits[i]) < 0.99 * m.replay.StepNs(edits[best])) {
      best = i;
    }
  }
  if (!edits.empty()) std::swap(edits[0], edits[best]);
  return edits;
}

int CoresForLoading(const Measured& m) {
  int cores = m.trace.run().usable_cores;
  if (cores <= 0) return 0;
  return std::max(1, cores / std::max(1, m.trace.run().local_ranks));
}

Finding LoaderFix(Finding finding, const Edit& edit) {
  const std::string n = std::to_string(edit.workers);
  finding.fix_cpp = "torch::data::DataLoaderOptions().workers(" + n +
                    ").max_jobs(" + std::to_string(2 * edit.workers) + ")";
  finding.fix_python =
      "DataLoader(..., num_workers=" + n + ", persistent_workers=True)";
  if (edit.threads > 0) {
    const std::string threads = std::to_string(edit.threads);
    finding.fix_cpp += "; at::set_num_threads(" + threads + ")";
    finding.fix_python += "; torch.set_num_threads(" + threads + ")";
  }
  return finding;
}

constexpr const char* kNoLoader =
    "no waits for batches were recorded; iterate over "
    "stepscope::Batches(*loader, \"train\"), or a torch DataLoader in Python";

Verdict CheckSyncDataLoading(const Measured& m) {
  const Waits waits = FindWaits(m);
  if (!waits.any) return CouldNotLookBecause(kNoLoader);
  const int workers = LoaderWorkers(m.trace);
  if (workers > 0) return Clean();
  const bool named_multi =
      std::ranges::any_of(m.trace.ranges(), [&](const Range& range) {
        return m.trace.name(range.name).find("_MultiProcessing") !=
               std::string_view::npos;
      });
  if (named_multi || waits.batches == 0) return Clean();

  const double step = m.step_ns();
  const double data = m.MeanNs(Cause::kData);
  const double per_batch =
      data * static_cast<double>(m.steps.steady.size()) / waits.batches;
  if (per_batch < kInMemoryBatchNs || data * 1e-6 < GateMs(m) ||
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
      static_cast<int>(std::min(std::ceil(data / rest), kMostWorkers)) + 1;
  if (cores > 0) count = std::min(count, cores);

  finding.evidence =
      "Batches are made on the training thread: " + Milliseconds(data * 1e-6) +
      " of the " + Milliseconds(step * 1e-6) + " step (" +
      Percent(data / step) + ")" +
      (m.has_gpu ? " pass with the GPU idle." : ".");
  finding.wrong_if =
      "the batches come from a source that cannot be read from another thread";

  if (!m.replay.check().speaks) {
    finding.assumption =
        "at best: all of the loading overlaps with the step, on " +
        Count(count - 1, "free core");
    finding = LoaderFix(std::move(finding), {.workers = count});
    if (m.has_gpu) {
      finding.fix_python.pop_back();
      finding.fix_python += ", pin_memory=True)";
    }
    return Fire(Sized(m, std::move(finding), {}, data));
  }

  std::vector<Edit> edits = WorkerEdits(m, 1, count);
  const Edit& best = edits[0];
  finding = Sized(m, std::move(finding), best, data);
  if (finding.gain.expected_ms < GateMs(m)) {
    finding.gain_is = GainKind::kNone;
    finding.gain = Gain();
    finding.speedup = 0;
    finding.evidence += " A worker would not help here: " +
                        Count(m.replay.program().cores, "core") +
                        " are already kept busy by the intra-op threads.";
    finding.fix_cpp = "decode less: smaller files, cached or uint8 tensors";
    finding.fix_python = finding.fix_cpp;
    return Fire(std::move(finding));
  }
  if (cores > 0) {
    finding.assumption =
        Count(cores, "usable core") + ", " +
        Count(best.workers, "loader worker") + " and " +
        Count(best.threads > 0 ? best.threads
                               : std::max(1, m.replay.program().threads),
              "intra-op thread") +
        " share them";
  } else {
    finding.assumption =
        "there is a free core for each worker (the number of "
        "cores was not recorded)";
  }
  finding = LoaderFix(std::move(finding), best);
  return Fire(std::move(finding), std::move(edits));
}

Verdict CheckLoaderBound(const Measured& m) {
  const Waits waits = FindWaits(m);
  if (!waits.any) return CouldNotLookBecause(kNoLoader);
  const int workers = LoaderWorkers(m.trace);
  const double step = m.step_ns();
  std::vector<double> shares;
  for (size_t i : m.steps.steady) {
    shares.push_back(static_cast<double>(m.splits[i][Cause::kData]) /
                     m.steps.windows[i].tiled.length());
  }
  const double data = m.MeanNs(Cause::kData);
  if (workers == 0 || Median(shares) < kWaitShare || data * 1e-6 < GateMs(m)) {
    return Clean();
  }
  const bool single =
      workers < 0 &&
      std::ranges::none_of(m.trace.ranges(), [&](const Range& range) {
        return m.trace.name(range.name).find("_MultiProcessing") !=
               std::string_view::npos;
      });
  if (single) return Clean();  // sync-data-loading speaks

  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples = waits.longest;
  finding.where = LoaderName(m);
  finding.evidence = "The training thread waits " + Milliseconds(data * 1e-6) +
                     " of the " + Milliseconds(step * 1e-6) + " step (" +
                     Percent(data / step) + ") for batches that " +
                     (workers > 0 ? Count(workers, "worker") + " make"
                                  : std::string("the workers make")) +
                     (workers == 1 ? "s." : ".");
  finding.wrong_if = "the waits stop once the workers have warmed up";
  const int cores = CoresForLoading(m);
  const int now = std::max(workers, 1);
  const int wanted = static_cast<int>(std::min(
      std::ceil(now * step / std::max(step - data, 1.0)), kMostWorkers));
  const int most = cores > 0 ? std::min(wanted + 1, cores) : wanted + 1;
  if (m.replay.check().speaks && m.replay.program().batch_cpu_ns > 0) {
    std::vector<Edit> edits = WorkerEdits(m, now + 1, std::max(most, now + 1));
    finding = Sized(m, std::move(finding), edits[0], data);
    if (finding.gain.expected_ms >= GateMs(m)) {
      finding.assumption = "the " + Count(cores, "usable core") +
                           " take the extra work, and storage keeps up";
      finding = LoaderFix(std::move(finding), edits[0]);
      return Fire(std::move(finding), std::move(edits));
    }
    finding.gain_is = GainKind::kNone;
    finding.gain = Gain();
    finding.speedup = 0;
    finding.evidence += " The cores are full: more workers cannot help.";
    finding.fix_cpp = finding.fix_python =
        "make batches cheaper: cache decoded images, smaller files, fewer "
        "transforms on the CPU";
    return Fire(std::move(finding));
  }
  finding.assumption = "at best: no wait is left";
  finding.gain_is = GainKind::kBound;
  finding.gain = {data * 1e-6, 0, data * 1e-6};
  finding = LoaderFix(std::move(finding), {.workers = std::max(most, now + 1)});
  finding.fix_python += "; try prefetch_factor=4";
  return Fire(std::move(finding));
}

constexpr Rule kRules[] = {
    {.id = "sync-data-loading",
     .question =
         "Are batches made on the training thread while the step waits?",
     .needs = {Kind::kRange},
     .check = &CheckSyncDataLoading,
     .reference = "PyTorch Performance Tuning Guide: Enable asynchronous data "
                  "loading and augmentation"},
    {.id = "loader-bound",
     .question = "Do the loader's workers deliver batches too slowly?",
     .needs = {Kind::kRange},
     .check = &CheckLoaderBound,
     .reference = "PyTorch Performance Tuning Guide: Enable asynchronous data "
                  "loading and augmentation"}};

}  // namespace

extern const std::span<const Rule> kDataLoading = kRules;

}  // namespace stepscope
