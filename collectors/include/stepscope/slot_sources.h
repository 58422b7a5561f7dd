// The numbers of the collectors that write slots (MakeSlotTag() in
// stepscope/slot.h), which keep their records apart in a thread's chunks. 0 is
// the session's; a tag has room for 1 to 3.
#pragma once

#include <cstdint>

namespace stepscope {

inline constexpr uint8_t kTorchSlots = 1;
inline constexpr uint8_t kNvtxSlots = 2;

}  // namespace stepscope
