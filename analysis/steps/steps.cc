#include "steps/steps.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "ops/by_name.h"
#include "ops/loader_spans.h"
#include "ops/update_span.h"
#include "steps/inferred_steps.h"
#include "steps/steady_steps.h"
#include "steps/tiling.h"

namespace stepscope {
namespace {

// A warm-up step takes more than 1.2 times the median of the others, and at
// least 30 % of its excess is one-off work. Our own choice, above the usual
// variation of steady steps (a few per cent).
constexpr double kSlowTimes = 1.2;
constexpr double kMinExplainedFrac = 0.3;
// A launch takes 5 to 50 us, and loading a kernel milliseconds (CUDA C++
// Programming Guide, "Lazy Loading").
constexpr int64_t kLoadingNs = 1'000'000;
// An outlier takes more than 1.5 times the median and is also more than 3.5
// robust standard deviations above it. 3.5 is the usual bound for median
// absolute
// deviations (Iglewicz and Hoaglin), which XProf uses, too. With fewer than
// five steps the deviation means little.
constexpr double kOutlierTimes = 1.5;
constexpr double kOutlierZ = 3.5;
constexpr size_t kMinStepsForOutliers = 5;
// Slow steps that make up more than a quarter of all are normal for the run.
constexpr double kMaxOutlierFrac = 0.25;
// A part of the run whose mean step differs by more than 1 % from that of all
// steps does not represent them, because gains of 1 % are worth reporting.
constexpr double kReplayWindowError = 0.01;

// The thread with most operators outside backward passes, which may have a
// thread of their own.
RowId BusiestThread(const Trace& trace, const OpTree& tree) {
  std::vector<int64_t> ops(trace.threads().size());
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const RowId thread = trace.ops()[row].thread;
    if (thread != kNone && !tree.in_backward(row)) ++ops[thread];
  }
  const auto most = std::ranges::max_element(ops);
  return most == ops.end() || *most == 0
             ? kNone
             : static_cast<RowId>(most - ops.begin());
}

// The thread that launches first: the forward pass comes before the backward
// pass, which has a thread of its own.
RowId FirstLaunchingThread(const Trace& trace) {
  std::vector<bool> launches(trace.runtime_calls().size());
  const auto note = [&](const DeviceWork& activity) {
    if (activity.call != kNone) launches[activity.call] = true;
  };
  for (const Kernel& activity : trace.kernels()) note(activity);
  for (const Copy& activity : trace.copies()) note(activity);
  const auto first = std::ranges::find(launches, true);
  return first == launches.end()
             ? kNone
             : trace.runtime_calls()[first - launches.begin()].thread;
}

// Finds the training thread from the most reliable source available: what the
// recording says, the steps' marks, the optimizer's ranges, the number of ops,
// the launches.
RowId TrainingThread(const Trace& trace, const OpTree& tree) {
  if (trace.run().training_thread != kNone) return trace.run().training_thread;
  if (!trace.steps().empty() && trace.steps()[0].thread != kNone) {
    return trace.steps()[0].thread;
  }
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kOptimizer && range.thread != kNone) {
      return range.thread;
    }
  }
  const RowId busiest = BusiestThread(trace, tree);
  return busiest != kNone ? busiest : FirstLaunchingThread(trace);
}

// Returns the marks of `thread` as windows. If marks overlap, as with a second,
// nested profile, only the first one counts.
std::vector<StepWindow> MarkedWindows(const Trace& trace, RowId thread) {
  std::vector<StepWindow> windows;
  for (const Step& step : trace.steps()) {
    if (step.thread != kNone && thread != kNone && step.thread != thread) {
      continue;
    }
    if (step.end_ns <= step.begin_ns) continue;
    if (!windows.empty() && step.begin_ns < windows.back().host.end_ns) {
      // In files rounded to microseconds, neighbours may overlap slightly.
      if (step.end_ns <= windows.back().host.end_ns) continue;
      windows.back().host.end_ns = step.begin_ns;
    }
    windows.push_back(
        {.host = {step.begin_ns, step.end_ns}, .number = step.number});
  }
  return windows;
}

// Removes the last step if no op runs in it but ops run in the one before:
// torch.profiler marks the start of a step as soon as the previous one ends,
// also if the loop is over.
void DropEmptyEnd(const Trace& trace, std::vector<StepWindow>& windows) {
  const auto runs_ops = [&](const StepWindow& window) {
    const auto op = std::ranges::lower_bound(trace.ops(), window.host.begin_ns,
                                             {}, &Op::begin_ns);
    return op != trace.ops().end() && op->begin_ns < window.host.end_ns;
  };
  if (windows.size() >= 2 && !runs_ops(windows.back()) &&
      runs_ops(windows.end()[-2])) {
    windows.pop_back();
  }
}

// True for runtime calls and overhead records of work that happens once per
// process: loading kernels, compiling, getting memory from the driver.
// Asynchronous allocations (cudaMallocAsync) recur in every step.
bool IsOneOff(std::string_view name) {
  for (std::string_view part :
       {"Lazy Function Loading", "Module Loading", "ModuleLoad", "LibraryLoad",
        "Compiler", "cudaMalloc", "hipMalloc", "hipModuleLoad"}) {
    if (name.find(part) != std::string_view::npos &&
        name.find("Async") == std::string_view::npos) {
      return true;
    }
  }
  return false;
}

// The first launches of kernels, if they take long although the device has
// nothing to do, so that the queue cannot be full. The driver then loads the
// kernel, of which not every driver writes an event.
std::vector<Span> FirstLaunches(const Trace& trace) {
  std::vector<Span> found;
  std::set<NameId> seen;
  // Kernels are in the order of their starts.
  int64_t busy_until_ns = INT64_MIN;
  for (const Kernel& kernel : trace.kernels()) {
    const int64_t free_ns = busy_until_ns;
    busy_until_ns = std::max(busy_until_ns, kernel.end_ns);
    if (!seen.insert(kernel.name).second || kernel.call == kNone) continue;
    const RuntimeCall& call = trace.runtime_calls()[kernel.call];
    // With blocking launches, the call returns after its kernel.
    const Span idle{std::max(call.begin_ns, free_ns),
                    std::min(call.end_ns, kernel.begin_ns)};
    if (idle.length() >= kLoadingNs) found.push_back(idle);
  }
  return found;
}

void MeasureOneOffs(const Trace& trace, std::vector<StepWindow>& windows) {
  const std::vector<Span> spans = OneOffSpans(trace);
  for (StepWindow& window : windows) {
    window.one_off_ns = LengthIn(spans, window.host);
  }
}

// How long the training thread waited for batches in each window, in ns.
std::vector<double> LoaderTimes(const Trace& trace, const Steps& steps) {
  const std::vector<Span> spans = LoaderSpans(trace, steps.thread);
  std::vector<double> times;
  for (const StepWindow& window : steps.windows) {
    times.push_back(static_cast<double>(LengthIn(spans, window.host)));
  }
  return times;
}

// The median of `sorted` without one occurrence of `left_out`. A slow step must
// not raise the median it is compared with. REQUIRES: at least two values.
double MedianWithout(const std::vector<double>& sorted, double left_out) {
  const auto at = static_cast<size_t>(
      std::ranges::lower_bound(sorted, left_out) - sorted.begin());
  const auto rest = [&](size_t i) { return sorted[i < at ? i : i + 1]; };
  const size_t half = (sorted.size() - 1) / 2;
  return sorted.size() % 2 == 0 ? rest(half)
                                : (rest(half - 1) + rest(half)) / 2;
}

void MarkWarmUp(std::vector<StepWindow>& windows) {
  if (windows.size() < 2) return;
  std::vector<double> sorted;
  sorted.reserve(windows.size());
  for (const StepWindow& window : windows) {
    sorted.push_back(static_cast<double>(window.tiled.length()));
  }
  std::ranges::sort(sorted);
  for (size_t i = 0; i < windows.size(); ++i) {
    const double length = windows[i].tiled.length();
    const double rest = MedianWithout(sorted, length);
    // What recurs to the last step is not done once.
    const bool recurs = i + 1 < windows.size() &&
                        2 * windows.back().one_off_ns >= windows[i].one_off_ns;
    if (length > kSlowTimes * rest && !recurs &&
        windows[i].one_off_ns >= kMinExplainedFrac * (length - rest)) {
      windows[i].kind = StepKind::kWarmUp;
    }
  }
}

// Returns Steps::rare_updates.
std::vector<bool> RareUpdates(const Trace& trace, const Steps& steps) {
  std::vector<bool> updates(steps.windows.size());
  for (const Range& range : trace.ranges()) {
    if (range.thread != steps.thread || !IsOptimizerStep(trace, range)) {
      continue;
    }
    const size_t step = WindowAt(steps, &StepWindow::host, range.begin_ns);
    if (step < updates.size()) updates[step] = true;
  }
  const auto count = static_cast<size_t>(std::ranges::count(updates, true));
  if (count == 0 || 2 * count > updates.size()) return {};
  return updates;
}

// Slow steps are not outliers if they recur. Nor are they if they waited for a
// batch about as long as another step did: with too few workers, every n-th
// step waits; or if they are the ones of each cycle that update the parameters.
void MarkOutliers(const std::vector<double>& loader_ns,
                  const std::vector<bool>& rare_updates,
                  std::vector<StepWindow>& windows) {
  if (windows.size() < kMinStepsForOutliers) return;
  std::vector<double> lengths, deviations;
  for (const StepWindow& w : windows) lengths.push_back(w.tiled.length());
  const double median = Median(lengths);
  for (double length : lengths) deviations.push_back(std::abs(length - median));
  // 1.4826 times the median absolute deviation estimates the standard deviation
  // of normally distributed values.
  const double spread = std::max(1.4826 * Median(deviations), 1.0);
  const double loader_median = Median(loader_ns);
  // True if another step's extra wait is within a factor of two of this one's.
  const auto waits_like = [&](size_t step) {
    const double ns = loader_ns[step] - loader_median;
    for (size_t i = 0; i < windows.size(); ++i) {
      const double other = loader_ns[i] - loader_median;
      if (i != step && windows[i].kind != StepKind::kWarmUp &&
          other >= ns / 2 && other <= 2 * ns) {
        return true;
      }
    }
    return false;
  };
  std::vector<size_t> far;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].kind != StepKind::kSteady ||
        (!rare_updates.empty() && rare_updates[i]) ||
        lengths[i] <= kOutlierTimes * median ||
        (lengths[i] - median) / spread <= kOutlierZ) {
      continue;
    }
    far.push_back(i);
  }
  if (far.size() > kMaxOutlierFrac * windows.size()) return;
  for (size_t i : far) {
    const double waited = loader_ns[i] - loader_median;
    const bool by_waiting = waited >= (lengths[i] - median) / 2;
    if (by_waiting && waits_like(i)) continue;
    windows[i].kind = StepKind::kOutlier;
  }
}

void ClassifySteps(const Trace& trace, Steps& steps) {
  std::vector<StepWindow>& windows = steps.windows;
  MarkWarmUp(windows);
  steps.rare_updates = RareUpdates(trace, steps);
  MarkOutliers(LoaderTimes(trace, steps), steps.rare_updates, windows);
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].kind == StepKind::kSteady) steps.steady.push_back(i);
  }
  // If every step is slow for some reason, there is nothing better to average.
  if (steps.steady.empty()) {
    for (size_t i = 0; i < windows.size(); ++i) steps.steady.push_back(i);
  }
}

}  // namespace

std::vector<Span> OneOffSpans(const Trace& trace) {
  std::vector<Span> spans = FirstLaunches(trace);
  ByName is_one_off(trace, &IsOneOff);
  for (const Overhead& row : trace.overheads()) {
    if (is_one_off(row.name)) {
      spans.push_back({row.begin_ns, row.end_ns});
    }
  }
  for (const RuntimeCall& row : trace.runtime_calls()) {
    if (is_one_off(row.name)) {
      spans.push_back({row.begin_ns, row.end_ns});
    }
  }
  return Merge(std::move(spans));
}

Steps FindSteps(const Trace& trace, const OpTree& tree) {
  Steps steps;
  steps.thread = TrainingThread(trace, tree);
  steps.windows = MarkedWindows(trace, steps.thread);
  DropEmptyEnd(trace, steps.windows);
  if (steps.windows.empty()) {
    InferredSteps inferred = InferSteps(trace, tree, steps.thread);
    steps.windows = std::move(inferred.windows);
    steps.step_source = std::move(inferred.step_source);
  }
  FillTiledSpans(trace, steps.windows);
  MeasureOneOffs(trace, steps.windows);
  ClassifySteps(trace, steps);
  return steps;
}

// Chooses the part by its mean, because gains are compared with the mean step.
ReplayWindow ChooseReplayWindow(const Steps& steps, size_t most) {
  const std::vector<size_t>& steady = steps.steady;
  if (steady.size() <= most) return {.steps = steps};
  std::vector<int64_t> up_to = {0};  // prefix sums of the steady lengths
  for (size_t i : steady) {
    up_to.push_back(up_to.back() + steps.windows[i].tiled.length());
  }
  const double mean =
      static_cast<double>(up_to.back()) / static_cast<double>(steady.size());
  const auto off = [&](size_t first) {
    const auto ns = static_cast<double>(up_to[first + most] - up_to[first]);
    return std::abs(ns / static_cast<double>(most) - mean);
  };
  size_t best = 0;
  for (size_t first = 1; first + most <= steady.size(); ++first) {
    if (off(first) < off(best)) best = first;
  }
  if (off(best) > kReplayWindowError * mean) return {.steps = steps};
  const size_t begin = steady[best];
  const size_t end = steady[best + most - 1] + 1;
  ReplayWindow window;
  window.steps.thread = steps.thread;
  window.steps.step_source = steps.step_source;
  window.steps.windows.assign(
      steps.windows.begin() + static_cast<std::ptrdiff_t>(begin),
      steps.windows.begin() + static_cast<std::ptrdiff_t>(end));
  for (size_t i = best; i < best + most; ++i) {
    window.steps.steady.push_back(steady[i] - begin);
  }
  if (begin > 0) window.begin_ns = steps.windows[begin - 1].host.begin_ns;
  return window;
}

StepStats StatsOf(const Steps& steps) {
  StepStats stats;
  if (!steps.is_recording) {
    stats.count = static_cast<int64_t>(steps.windows.size());
    stats.steady = static_cast<int64_t>(steps.steady.size());
  }
  stats.step_source = steps.step_source;
  if (steps.steady.empty()) return stats;
  double counted = 0;
  for (const StepWindow& window : steps.windows) {
    if (window.kind == StepKind::kWarmUp) continue;
    stats.all_mean_ms += window.tiled.length() * 1e-6;
    ++counted;
  }
  stats.all_mean_ms /= std::max(counted, 1.0);
  std::vector<double> lengths;
  int64_t total_ns = 0;
  for (size_t i : steps.steady) {
    total_ns += steps.windows[i].tiled.length();
    lengths.push_back(steps.windows[i].tiled.length() * 1e-6);
  }
  stats.mean_ms = total_ns * 1e-6 / lengths.size();
  stats.median_ms = Median(lengths);
  if (lengths.size() >= 2 && stats.mean_ms > 0) {
    double squares = 0;
    for (double length : lengths) {
      squares += (length - stats.mean_ms) * (length - stats.mean_ms);
    }
    stats.cov = std::sqrt(squares / (lengths.size() - 1)) / stats.mean_ms;
  }
  return stats;
}

double LongerBy(const Steps& steps, const std::set<size_t>& some) {
  double with = 0, without = 0, others = 0;
  for (size_t i = 0; i < steps.windows.size(); ++i) {
    const StepWindow& step = steps.windows[i];
    if (step.kind == StepKind::kWarmUp) continue;
    const auto ns = static_cast<double>(step.tiled.length());
    if (some.contains(i)) {
      with += ns;
    } else {
      without += ns;
      ++others;
    }
  }
  if (others == 0) return 0;
  const auto count = static_cast<double>(some.size());
  return std::max(0.0, with - count * without / others) / (count + others);
}

}  // namespace stepscope
