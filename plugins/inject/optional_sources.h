// The source that one of the two libraries lacks: with_torch.cc or
// without_torch.cc.
#pragma once

#include <stepscope/collector.h>

#include <memory>
#include <vector>

namespace stepscope {

// Operators, in the library for programs that use LibTorch.
void AddTorch(std::vector<std::unique_ptr<Collector>>& collectors);

}  // namespace stepscope
