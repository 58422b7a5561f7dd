#include "gpu/launch_lags.h"

#include <algorithm>

namespace stepscope {

std::vector<int64_t> LaunchLagsNs(const Trace& trace) {
  std::vector<int64_t> lags;
  for (const Kernel& kernel : trace.kernels()) {
    if (kernel.call == kNone || kernel.graph != 0) continue;
    lags.push_back(kernel.begin_ns -
                   trace.runtime_calls()[kernel.call].begin_ns);
  }
  std::ranges::sort(lags);
  return lags;
}

int64_t LagQuantileNs(const std::vector<int64_t>& ascending, double share) {
  const auto last = static_cast<double>(ascending.size() - 1);
  return ascending[static_cast<size_t>(share * last)];
}

std::string LagText(const std::vector<int64_t>& ascending) {
  if (ascending.empty()) return "no kernel has a recorded call";
  const auto early = std::ranges::lower_bound(ascending, 0) - ascending.begin();
  std::string text = std::to_string(early) + " of " +
                     std::to_string(ascending.size()) +
                     " kernels begin before their call; least " +
                     std::to_string(ascending.front()) + " ns";
  for (const int percent : {1, 5, 25, 50, 75, 95, 99}) {
    text += ", " + std::to_string(percent) + " % " +
            std::to_string(LagQuantileNs(ascending, percent / 100.0)) + " ns";
  }
  return text + ", most " + std::to_string(ascending.back()) + " ns";
}

}  // namespace stepscope
