// The sources that an injection may lack; with_*.cc and without_*.cc.
#pragma once

#include <stepscope/collector.h>

#include <memory>
#include <vector>

namespace stepscope {

// NVIDIA devices, where the build found CUPTI's headers.
void AddCupti(std::vector<std::unique_ptr<Collector>>& collectors);

// Operators, in the library for programs that use LibTorch.
void AddTorch(std::vector<std::unique_ptr<Collector>>& collectors);

}  // namespace stepscope
