// Converts NVTX texts and payloads for the Trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "nvtx_slots.h"

namespace stepscope {

// Converts a wide text (UTF-32 on Linux) to UTF-8, cut to the size of `out`
// between two characters. Invalid characters become U+FFFD. Null becomes "".
std::string_view ToUtf8(const wchar_t* text, std::span<char> out) noexcept;

// Returns the payload as the shortest text that reads back as the same number;
// empty for an unknown type.
std::string PayloadText(NvtxPayload type, uint64_t bits);

}  // namespace stepscope
