// Stream handles, which NVTX uses, to CUPTI's stream numbers, which a Trace
// uses.
#pragma once

#include <cstdint>

namespace stepscope {

// Asks the CUPTI and the driver of this process, and loads neither. False
// without CUPTI or for an unknown stream. Any thread that may use the stream
// may call it.
bool FindStream(void* stream, uint32_t* context, uint32_t* id) noexcept;

}  // namespace stepscope
