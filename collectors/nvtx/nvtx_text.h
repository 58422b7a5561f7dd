// Texts as NVTX hands them over and as the Trace shows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "nvtx_slots.h"

namespace stepscope {

// UTF-8 of a wide text, which is UTF-32 on Linux, as far as it fits `out`,
// whole characters; what is no character becomes U+FFFD. Null reads as empty.
std::string_view ToUtf8(const wchar_t* text, std::span<char> out) noexcept;

// A payload as text: the shortest that reads back as the same number. Empty
// for a type that is none.
std::string PayloadText(NvtxPayload type, uint64_t bits);

}  // namespace stepscope
