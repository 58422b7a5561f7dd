#include "evidence/launches.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "device/gaps.h"
#include "ops/contains.h"
#include "steps/steady_steps.h"

namespace stepscope {

std::vector<std::vector<int64_t>> LaunchTimes(const AnalysisContext& m) {
  std::vector<std::vector<int64_t>> times(m.steps.windows.size());
  std::vector<bool> counted(m.trace.runtime_calls().size());
  for (const Kernel& kernel : m.trace.kernels()) {
    // A graph launch is one call for many kernels, so count each call once.
    if (kernel.call == kNone || counted[kernel.call]) continue;
    counted[kernel.call] = true;
    const int64_t begin = m.trace.runtime_calls()[kernel.call].begin_ns;
    const size_t step = SteadyStepAt(m.steps, begin);
    if (step < times.size()) times[step].push_back(begin);
  }
  for (std::vector<int64_t>& step : times) std::ranges::sort(step);
  return times;
}

bool InGraph(const Trace& trace, const ActivityRef& activity) {
  if (activity.table == ActivityTable::kKernel &&
      trace.kernels()[activity.row].graph != 0) {
    return true;
  }
  // Copies and memsets do not record their graph, but they record the call that
  // launched it.
  const RowId call = ActivityOf(trace, activity).call;
  return call != kNone &&
         Contains(trace.name(trace.runtime_calls()[call].name), "GraphLaunch");
}

size_t StepsAlike(const AnalysisContext& m) {
  using Launch = std::pair<NameId, std::array<int32_t, 3>>;
  std::map<size_t, std::vector<Launch>> by_step;
  for (const KernelUse& use : m.kernels.uses) {
    const Kernel& kernel = m.trace.kernels()[use.kernel];
    by_step[use.step].push_back({kernel.name, kernel.grid});
  }
  // Compare launches as sets, because their order on several streams or from
  // several threads may vary by chance.
  std::map<std::vector<Launch>, size_t> alike;
  size_t most = 0;
  for (auto& [step, launches] : by_step) {
    std::ranges::sort(launches);
    most = std::max(most, ++alike[launches]);
  }
  return most;
}

int64_t LaunchedNs(const Trace& trace, RowId kernel) {
  const RowId call = trace.kernels()[kernel].call;
  return call == kNone ? 0 : trace.runtime_calls()[call].begin_ns;
}

std::vector<int64_t> LaunchesOfProducts(const AnalysisContext& m) {
  std::vector<int64_t> times;
  for (const KernelUse& use : m.kernels.uses) {
    if (use.multiplies) times.push_back(LaunchedNs(m.trace, use.kernel));
  }
  std::ranges::sort(times);
  return times;
}

}  // namespace stepscope
