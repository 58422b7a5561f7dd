// FindStateReads(): where the program reads all parameters and then runs no op
// for a while, as state_dict() and torch.save() do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

struct StateRead {
  size_t step = 0;      // index into Steps::windows
  RowId first = kNone;  // the first read
  Span span = {};       // from the first read to the op behind the pause, or
                        // to the end of the step
  int64_t reads = 0;    // calls of aten::detach, as state_dict() makes them
  double own_ns = 0;    // in pauses of more than 0.5 ms, among and behind them
};

// Of the training thread, in the steady steps, in time order: at least as many
// reads as parameters get a gradient, behind each other. Without time that the
// loop waits for batches, and without copies into another network. Empty unless
// most steps have one.
std::vector<StateRead> FindStateReads(const AnalysisContext& context);

}  // namespace stepscope
