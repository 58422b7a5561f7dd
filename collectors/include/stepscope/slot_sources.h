// The numbers of the sources that write slots (MakeSlotTag() in
// stepscope/slot.h): what keeps their records apart in a thread's chunks. The
// session has 0, and a tag has room for 3 more.
#pragma once

#include <cstdint>

namespace stepscope {

inline constexpr uint8_t kTorchSlots = 1;
inline constexpr uint8_t kNvtxSlots = 2;

}  // namespace stepscope
