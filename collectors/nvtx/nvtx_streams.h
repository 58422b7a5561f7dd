// Converts stream handles, which NVTX uses, to CUPTI's stream numbers, which a
// Trace uses.
#pragma once

#include <cstdint>

namespace stepscope {

// Asks the CUPTI and the driver that are loaded in this process, and loads
// neither. False without CUPTI or for an unknown stream. May be called by any
// thread that may use the stream.
bool FindStream(void* stream, uint32_t* context, uint32_t* id) noexcept;

}  // namespace stepscope
