// Gives the open ranges of a thread numbers, because a caller outside of C++
// cannot be trusted with a RangeToken, which contains a pointer.
#pragma once

#include <stepscope/range.h>

#include <cstdint>
#include <string_view>

namespace stepscope {

// Opens a range on the calling thread. Returns 0 if nothing is recorded.
uint64_t OpenThreadRange(RangeKind kind, std::string_view name,
                         std::string_view detail);

// Returns false if the calling thread has no such range open. Ranges may end in
// any order, like those of generators and coroutines.
bool CloseThreadRange(uint64_t range);

}  // namespace stepscope
