// NVTX names streams by their handles, a Trace by the numbers that CUPTI gives
// them.
#pragma once

#include <cstdint>

namespace stepscope {

// Asks the CUPTI and the driver that are in the process, if they are; loads
// neither. False if the stream has no number: no CUPTI, or no such stream. Any
// thread may call it that may use the stream.
bool FindStream(void* stream, uint32_t* context, uint32_t* id) noexcept;

}  // namespace stepscope
