#include "context/contention.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "replay/model/loader.h"

namespace stepscope {
namespace {

// The causes during which the training thread needs a core. Its waits for a
// core lie inside them. /proc gives only the sum of the waits per step, so each
// cause gives up the same share of its time.
std::vector<Cause> RunningCauses(const Trace& trace) {
  std::vector<Cause> causes = {Cause::kCompute, Cause::kDispatch,
                               Cause::kHostCode, Cause::kUnknown};
  // Where workers make the batches, the thread only waits for them.
  if (LoaderWorkers(trace) <= 0 && !NamesWorkerProcesses(trace)) {
    causes.push_back(Cause::kData);
  }
  return causes;
}

using Usage = std::unordered_map<int64_t, const HostUsage*>;  // by step

Usage UsageOfSteps(const Trace& trace) {
  Usage usage;
  for (const HostUsage& row : trace.host_usage()) usage[row.step] = &row;
  return usage;
}

int64_t OwnThreads(const Trace& trace) {
  int64_t threads = -1;
  for (const Settings& row : trace.settings()) {
    threads = std::max<int64_t>(threads, row.intra_op_threads);
  }
  if (threads <= 0) return -1;
  int64_t workers = 0;
  for (const Loader& loader : trace.loaders()) {
    workers = std::max<int64_t>(workers, loader.workers);
  }
  for (const HostUsage& usage : trace.host_usage()) {
    workers = std::max<int64_t>(workers, usage.loader_workers);
  }
  return threads * std::max(1, trace.run().local_ranks) + workers;
}

}  // namespace

Contention FindContention(const Trace& trace, const Steps& steps) {
  Contention found;
  found.own_threads = OwnThreads(trace);
  found.cores = trace.run().usable_cores;
  const Usage rows = UsageOfSteps(trace);
  // Workers that are threads are counted with their process.
  const bool add_workers = WorkersAreProcesses(trace);
  double delay = 0, delays = 0, switches = 0, counted = 0, step_ns = 0;
  double wall = 0, cpu = 0;
  for (size_t i : steps.steady) {
    step_ns += static_cast<double>(steps.windows[i].tiled.length());
    const auto row = rows.find(steps.windows[i].number);
    if (row == rows.end()) continue;
    const HostUsage* const usage = row->second;
    if (usage->run_delay_ns >= 0) {
      delay += static_cast<double>(usage->run_delay_ns);
      ++delays;
    }
    if (usage->process_cpu_ns >= 0) {
      wall += static_cast<double>(usage->end_ns - usage->begin_ns);
      cpu += static_cast<double>(usage->process_cpu_ns);
      if (add_workers && usage->loader_cpu_ns > 0) {
        cpu += static_cast<double>(usage->loader_cpu_ns);
      }
    }
    // The switches are used only in the text of the finding.
    if (usage->involuntary_switches >= 0) {
      switches += static_cast<double>(usage->involuntary_switches);
      ++counted;
    }
  }
  if (counted > 0) found.switches = switches / counted;
  if (wall > 0) {
    found.busy_cores = cpu / wall * std::max(1, trace.run().local_ranks);
  }
  if (delays == 0) return found;
  found.delay_ns = delay / delays;
  step_ns /= static_cast<double>(steps.steady.size());
  found.is_large = found.delay_ns >= kLargeDelayFrac * step_ns;
  // With more threads than cores, the run competes with itself
  // (cpu-oversubscription).
  if (!found.is_large || found.own_threads <= 0 ||
      found.own_threads > found.cores) {
    return found;
  }
  const double left_ns = (found.cores - found.busy_cores) * step_ns;
  found.by_further_threads = found.busy_cores >= 0 && left_ns < found.delay_ns;
  found.by_others = !found.by_further_threads;
  return found;
}

void MoveToContended(const Trace& trace, const Steps& steps,
                     std::vector<CauseTimes>& splits) {
  const Usage rows = UsageOfSteps(trace);
  const std::vector<Cause> causes = RunningCauses(trace);
  for (size_t i = 0; i < splits.size(); ++i) {
    const auto usage = rows.find(steps.windows[i].number);
    if (usage == rows.end() || usage->second->run_delay_ns <= 0) continue;
    CauseTimes& split = splits[i];
    double running = 0;
    for (Cause cause : causes) running += static_cast<double>(split[cause]);
    if (running <= 0) continue;
    const double frac = std::min(
        1.0, static_cast<double>(usage->second->run_delay_ns) / running);
    for (Cause cause : causes) {
      const int64_t moved =
          std::llround(frac * static_cast<double>(split[cause]));
      split[cause] -= moved;
      split[Cause::kContended] += moved;
    }
  }
}

}  // namespace stepscope
