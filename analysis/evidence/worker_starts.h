// Where a loader's workers start again, such as in each epoch. The recording
// has no event for that; it shows in what the training thread does.
#pragma once

#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// Returns where workers may have started on the training thread: at ops that
// draw the seeds of a new iterator, and at loads after unusually long pauses.
// Each span ends with the first batch of the new workers. The ones found in the
// first way come first.
std::vector<Span> StartsOfWorkers(const AnalysisContext& context);

// True if ranges or Python frames show that the step creates an iterator over
// the loader.
bool MakesIterator(const AnalysisContext& context, const Span& step);

}  // namespace stepscope
