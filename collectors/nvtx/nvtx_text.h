// Conversions of NVTX texts and payloads for the Trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "nvtx_slots.h"

namespace stepscope {

// A wide text (UTF-32 on Linux) as UTF-8, cut to `out` at a whole character.
// Invalid characters become U+FFFD. Null is empty.
std::string_view ToUtf8(const wchar_t* text, std::span<char> out) noexcept;

// A payload as the shortest text that reads back as the same number; empty for
// an unknown type.
std::string PayloadText(NvtxPayload type, uint64_t bits);

}  // namespace stepscope
