// Lists of Python numbers that the program turns into tensors, number by
// number: torch.tensor([[0.5, ...], ...]).
#pragma once

#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// Returns the conversions of the training thread that take more than a pause of
// the framework does, in time order. torch.tensor() walks the list twice: for
// its sizes and type before aten::empty, and for its values between aten::empty
// and the aten::to and aten::lift_fresh that follow. A span covers both; of the
// pause before aten::empty, which other code may have a part in, at most three
// times what the values take. What a loader range contains is left out: it is
// loading.
std::vector<Span> FindConvertedLists(const AnalysisContext& context);

}  // namespace stepscope
