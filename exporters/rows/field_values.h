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

// Returns the kind for "Pageable", "pinned", "Device Static", ...: only the
// start of the word counts, in upper or lower case. kUnknown for other words.
MemoryKind MemoryKindOf(std::string_view word);
// Returns the three numbers of "[1, 2, 3]"; missing ones are 0.
std::array<int32_t, 3> ReadThree(std::string_view list);

}  // namespace stepscope
