// FindStateReads(): finds where the program reads all parameters and then runs
// no op for a while, as state_dict() and torch.save() do.
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
  Span span = {};       // from the first read to the op after the pause, or to
                        // the end of the step
  int64_t reads = 0;    // calls of aten::detach, as state_dict() makes them
  double own_ns = 0;    // pauses of more than 0.5 ms in `span`
};

// Returns the state reads of the training thread in the steady steps, in time
// order. Each has at least as many consecutive reads as parameters get a
// gradient. Leaves out time in which the loop waits for batches, and copies
// into another network. Empty unless most steps have a state read.
std::vector<StateRead> FindStateReads(const AnalysisContext& context);

}  // namespace stepscope
