// aten::_index_put_impl_: sums of rows by index whose indices are sorted.
#pragma once

#include <stepscope/trace.h>

namespace stepscope {

// Returns the outermost aten::_index_put_impl_ around `op`, possibly `op`
// itself; kNone if there is none.
RowId IndexPutAround(const Trace& trace, RowId op);

// True if `put` runs inside scatter_add or index_add, which add with atomics
// unless torch.use_deterministic_algorithms is on.
bool IsDeterministicSum(const Trace& trace, RowId put);

// True if a kernel of such a sum was recorded.
bool SumsDeterministically(const Trace& trace);

}  // namespace stepscope
