#include "sources.h"

#include <stepscope/collectors.h>

#include "optional_sources.h"

namespace stepscope {

std::vector<std::unique_ptr<Collector>> InjectedCollectors(
    int64_t training_tid) {
  std::vector<std::unique_ptr<Collector>> collectors;
  collectors.push_back(MakeHostCollector({.training_tid = training_tid}));
  AddCupti(collectors);
  collectors.push_back(MakeNvtxCollector());
  AddTorch(collectors);
  return collectors;
}

// Profile's default list, in this library: the one of a program that links
// LibTorch would make every injected program load it.
std::vector<std::unique_ptr<Collector>> DefaultCollectors(const TorchOptions&) {
  return InjectedCollectors(0);
}

}  // namespace stepscope
