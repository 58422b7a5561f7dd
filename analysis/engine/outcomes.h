// Outcomes: what changes brought, compared with what was predicted for them.
// They, and not the model, say how far a predicted gain may be off.
#pragma once

#include <cstddef>

#include "edit/edit.h"

namespace stepscope {

// Measured gain / predicted gain, of all known pairs of runs before and after a
// change of the same kind.
struct Outcomes {
  double low = 1, high = 1;  // hold 90 % of the pairs, and 1
  size_t pairs = 0;          // 0: too few to tell
};

// The outcomes of all kinds of change that `edit` makes, taken together: the
// widest interval, and the smallest number of pairs.
Outcomes OutcomesOf(const Edit& edit);

}  // namespace stepscope
