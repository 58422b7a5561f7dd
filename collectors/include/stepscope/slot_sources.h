// The numbers of the collectors that write slots (MakeSlotTag() in
// stepscope/slot.h). They tell the records of different collectors in a
// thread's chunks apart. 0 is the session; a tag has room for 1 to 3.
#pragma once

#include <cstdint>

namespace stepscope {

inline constexpr uint8_t kTorchSlots = 1;
inline constexpr uint8_t kNvtxSlots = 2;

}  // namespace stepscope
