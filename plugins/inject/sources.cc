#include "sources.h"

#include <stepscope/collectors.h>

#include "optional_sources.h"

namespace stepscope {

std::vector<std::unique_ptr<Collector>> InjectedCollectors(
    int64_t training_tid) {
  std::vector<std::unique_ptr<Collector>> collectors;
  // Not DefaultCollectors(), which would link LibTorch. Most injected programs
  // lack it.
  collectors.push_back(MakeHostCollector({.training_tid = training_tid}));
  collectors.push_back(
      MakeCuptiCollector({.capture_scopes = TorchCaptureScopes()}));
  collectors.push_back(MakeNvtxCollector());
  AddTorch(collectors);
  return collectors;
}

}  // namespace stepscope
