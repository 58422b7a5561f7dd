#include <stepscope/collectors.h>

namespace stepscope {

std::vector<std::unique_ptr<Collector>> DefaultCollectors(
    const TorchOptions& options) {
  std::vector<std::unique_ptr<Collector>> collectors;
  collectors.push_back(MakeHostCollector());
  collectors.push_back(MakeSettingsCollector());
  collectors.push_back(MakeAllocatorCollector());
  collectors.push_back(
      MakeCuptiCollector({.capture_scopes = MakeTorchCaptureScopes(options)}));
  collectors.push_back(MakeNvtxCollector());
  // Starts last and stops first, so that it does not record what the other
  // collectors do when they start and stop.
  collectors.push_back(MakeTorchCollector(options));
  return collectors;
}

}  // namespace stepscope
