// MarkCleared(): finds gradients that were cleared before anything read them.
#pragma once

#include <vector>

#include "context/analysis_context.h"
#include "evidence/gradients/backward_passes.h"
#include "evidence/gradients/parameter_updates.h"

namespace stepscope {

// Sets `unread` and `cleared` of such gradients. REQUIRES: all optimizers show
// what they update, and none runs in hooks; `passes` are all passes of the
// recording, in time order.
void MarkCleared(const AnalysisContext& context,
                 const ParameterUpdates& updates,
                 std::vector<BackwardPass>& passes);

}  // namespace stepscope
