// Values and words that the readers of all formats share.
#pragma once

#include <stepscope/event.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace stepscope {

// Times beyond this are damage: adding a duration could overflow.
inline constexpr int64_t kLargestNs = int64_t{4'600'000'000'000'000'000};

// The bit of a kind in a set of kinds.
inline uint64_t Bit(Kind kind) { return uint64_t{1} << static_cast<int>(kind); }

// "Pageable", "pinned", "Device Static", ...: case-blind, by how the word
// begins; kUnknown for any other.
MemoryKind MemoryKindOf(std::string_view word);
// Three numbers of "[1, 2, 3]"; those that are not there stay 0.
std::array<int32_t, 3> ReadThree(std::string_view list);

}  // namespace stepscope
