// The sources that only one of the two libraries has: with_torch.cc or
// without_torch.cc is linked.
#pragma once

#include <stepscope/capture_scopes.h>
#include <stepscope/collector.h>

#include <memory>
#include <vector>

namespace stepscope {

// Adds LibTorch's operators and allocator, in the library for programs that use
// the LibTorch of this build.
void AddTorch(std::vector<std::unique_ptr<Collector>>& collectors);

// For CuptiOptions; null in the other library.
std::shared_ptr<CaptureScopes> TorchCaptureScopes();

}  // namespace stepscope
