// Finds lists of Python numbers that the program turns into tensors, number by
// number: torch.tensor([[0.5, ...], ...]).
#pragma once

#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// Returns the conversions on the training thread that take longer than a pause
// of the framework, and loops of at least 16 shorter ones, in time order.
//
// torch.tensor() walks the list twice: for its sizes and type before
// aten::empty, and for its values between aten::empty and the aten::to and
// aten::lift_fresh that follow. A span covers both walks. Other code may share
// the pause before aten::empty, so at most three times the second walk is taken
// from it. Conversions inside a loader range are left out, because they are
// loading.
std::vector<Span> FindConvertedLists(const AnalysisContext& context);

}  // namespace stepscope
