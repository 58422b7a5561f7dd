// The ranges that a thread has open, by number: a caller outside of C++ cannot
// be trusted with a RangeToken, which is a pointer.
#pragma once

#include <stepscope/range.h>

#include <cstdint>
#include <string_view>

namespace stepscope {

// Opens a range on the calling thread; 0 where nothing is recorded.
uint64_t OpenThreadRange(RangeKind kind, std::string_view name,
                         std::string_view detail);

// False if the calling thread has no such range open. Ranges may end in any
// order, as those of generators and coroutines do.
bool CloseThreadRange(uint64_t range);

}  // namespace stepscope
