// FeedsItself(): decides whether a chain of ops is one position of a recurrent
// network.
#pragma once

#include <stepscope/trace.h>

#include <span>

namespace stepscope {

// True if the sizes of `chain`, rows of trace.ops(), show that the result has
// the size of a tensor that the chain needs. A product must keep the width of
// the state, or compute 3 or 4 gates from it. Its result must be added to
// another tensor of the same size, or its operand must join the input and the
// state. False if sizes were not recorded.
bool FeedsItself(const Trace& trace, std::span<const RowId> chain);

}  // namespace stepscope
