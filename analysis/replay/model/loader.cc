#include "replay/model/loader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/loader_spans.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// Files that name more workers than this are damaged.
constexpr int kMostWorkers = 1024;
// A batch that a worker process has finished is handed over in 0.3 to 1.5 ms: a
// message, and a file descriptor for each tensor (torch 2.11, two busy cores).
constexpr double kMostHandOverNs = 2'000'000;
// Workers are too slow if the training thread waits for them for at least 5 %
// of the step, the share from which torch-tb-profiler and XProf report loading.
// It must wait in most steps, because steps that start an epoch wait however
// fast the workers are.
constexpr double kLateFrac = 0.05;
constexpr size_t kLongestRow = 16;

// The first loader whose number of workers is known; null if there is none.
const Loader* FeedingLoader(const Trace& trace) {
  const auto loaders = trace.loaders();
  const auto known = std::ranges::find_if(loaders, [](const Loader& loader) {
    return loader.workers >= 0 && loader.workers <= kMostWorkers;
  });
  return known == loaders.end() ? nullptr : &*known;
}

// True if, for at least the share `least` of all series of `row` consecutive
// waits, the waits of the series together are long.
bool RowsWait(const std::vector<double>& waits, size_t row, double batch_ns,
              double least) {
  size_t late = 0;
  const size_t rows = waits.size() - row + 1;
  for (size_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (size_t k = i; k < i + row; ++k) sum += waits[k];
    late += sum >= kLateFrac * batch_ns * static_cast<double>(row);
  }
  return static_cast<double>(late) >= least * static_cast<double>(rows);
}

// Returns 0 unless the loop waits for batches throughout. n workers that start
// together finish together, and then the loop waits only for every n-th batch.
// So n consecutive waits are judged together, and n is returned. If the number
// of workers is unknown, tries lengths that are short enough that one long wait
// is in only a few of the series. Then tries those up to half of all waits,
// where all series must wait: one long wait is never in all of them.
size_t WaitsThroughout(const std::vector<double>& waits, int workers,
                       double batch_ns) {
  if (IsHandOver(waits)) return 0;
  if (workers > 0) {
    const auto row = static_cast<size_t>(workers);
    return waits.size() >= 2 * row && RowsWait(waits, row, batch_ns, kMostSteps)
               ? row
               : 0;
  }
  const size_t half = std::min(waits.size() / 2, kLongestRow);
  for (size_t row = 1; row <= std::max<size_t>(half, 1); ++row) {
    const bool is_short = row <= std::max<size_t>(waits.size() / 4, 1);
    if (RowsWait(waits, row, batch_ns, is_short ? kMostSteps : 1)) return row;
  }
  return 0;
}

}  // namespace

int LoaderWorkers(const Trace& trace) {
  const Loader* loader = FeedingLoader(trace);
  if (loader != nullptr) return loader->workers;
  for (const HostUsage& usage : trace.host_usage()) {
    if (usage.loader_workers > 0 && usage.loader_workers <= kMostWorkers) {
      return usage.loader_workers;
    }
  }
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kLoader &&
        trace.name(range.name).find("SingleProcess") !=
            std::string_view::npos) {
      return 0;
    }
  }
  return -1;
}

int LoaderBatchesAhead(const Trace& trace) {
  const Loader* loader = FeedingLoader(trace);
  if (loader == nullptr || loader->prefetch_factor <= 0 ||
      loader->prefetch_factor > kMostWorkers) {
    return -1;
  }
  return loader->prefetch_factor;
}

bool NamesWorkerProcesses(const Trace& trace) {
  return std::ranges::any_of(trace.ranges(), [&](const Range& range) {
    return trace.name(range.name).find("MultiProcessing") !=
           std::string_view::npos;
  });
}

bool WorkersAreProcesses(const Trace& trace) {
  return std::ranges::any_of(trace.loaders(), [&](const Loader& loader) {
    return trace.name(loader.kind) == "processes";
  });
}

std::vector<RowId> BatchRanges(const Trace& trace, RowId thread) {
  std::vector<RowId> rows;
  if (thread == kNone) return rows;
  const TakesBatch takes_batch(trace);
  const std::vector<RowId> openings = OpeningLoads(trace, thread);
  for (RowId row = 0; row < trace.ranges().size(); ++row) {
    const Range& range = trace.ranges()[row];
    if (range.thread == thread && takes_batch(range) &&
        !std::ranges::binary_search(openings, row)) {
      rows.push_back(row);
    }
  }
  return rows;
}

bool IsHandOver(std::vector<double> waits) {
  if (waits.empty()) return false;
  double mean = 0;
  for (double ns : waits) mean += ns / static_cast<double>(waits.size());
  std::ranges::sort(waits);
  return mean < kMostHandOverNs && mean < 2 * waits[waits.size() / 10];
}

LoaderRate MeasureLoaderRate(const Trace& trace, const Steps& steps, int cores,
                             double step_ns) {
  LoaderRate rate;
  const int workers = LoaderWorkers(trace);
  if (steps.windows.empty() ||
      !(workers > 0 || (workers < 0 && NamesWorkerProcesses(trace)))) {
    return rate;
  }
  std::vector<double> waits;
  std::vector<int64_t> arrived;
  for (RowId row : BatchRanges(trace, steps.thread)) {
    const Range& range = trace.ranges()[row];
    if (range.begin_ns < steps.windows.front().host.begin_ns ||
        range.begin_ns >= steps.windows.back().host.end_ns) {
      continue;
    }
    arrived.push_back(range.end_ns);
    waits.push_back(static_cast<double>(range.end_ns - range.begin_ns));
  }
  if (waits.empty()) return rate;
  const double per_step = static_cast<double>(waits.size()) /
                          static_cast<double>(steps.windows.size());
  const size_t row = WaitsThroughout(waits, workers, step_ns / per_step);
  if (row > 0 && row < arrived.size()) {
    // Uses the time between arrivals and not the step time, because the host
    // may take batches faster than the device processes them.
    double sum_ns = 0;
    for (size_t i = row; i < arrived.size(); ++i) {
      sum_ns += static_cast<double>(arrived[i] - arrived[i - row]);
    }
    rate.period_ns = sum_ns / static_cast<double>(arrived.size() - row) /
                     static_cast<double>(row) * per_step;
    return rate;
  }

  double cpu_ns = 0, counted = 0;
  bool reads = false;
  for (const HostUsage& usage : trace.host_usage()) {
    if (usage.loader_cpu_ns < 0) continue;
    cpu_ns += static_cast<double>(usage.loader_cpu_ns);
    reads = reads || usage.loader_read_bytes > 0;
    ++counted;
  }
  // If workers also wait for storage, their CPU time is not all of their time.
  rate.unknown = cpu_ns <= 0 || reads;
  if (cpu_ns <= 0 || workers <= 0) return rate;
  const int at_once = cores > 0 ? std::min(workers, cores) : workers;
  rate.period_ns = cpu_ns / counted / at_once;
  return rate;
}

}  // namespace stepscope
