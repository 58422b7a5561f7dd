// FeedsItself(): whether a chain of ops is one position of a recurrent network.
#pragma once

#include <stepscope/trace.h>

#include <span>

namespace stepscope {

// True if the sizes of `chain`, rows of trace.ops(), show that its result has
// the size of a tensor it needs: a product keeps the width of the state, or
// makes 3 or 4 gates of it, and its result is added to another tensor of its
// size, or the input and the state were joined to its operand. False where
// sizes were not recorded.
bool FeedsItself(const Trace& trace, std::span<const RowId> chain);

}  // namespace stepscope
