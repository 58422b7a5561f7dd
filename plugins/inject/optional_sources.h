// The sources that only one of the two injection libraries has. Either
// with_torch.cc or without_torch.cc is linked.
#pragma once

#include <stepscope/capture_scopes.h>
#include <stepscope/collector.h>

#include <memory>
#include <vector>

namespace stepscope {

// In the library for programs that use this build's LibTorch: adds LibTorch's
// operators and allocator.
void AddTorch(std::vector<std::unique_ptr<Collector>>& collectors);

// Returns the value for CuptiOptions::capture_scopes; null in the other
// library.
std::shared_ptr<CaptureScopes> TorchCaptureScopes();

}  // namespace stepscope
