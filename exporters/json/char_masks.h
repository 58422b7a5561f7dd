// JSON's characters: white space, and the positions of structural characters in
// 64 bytes, as bit masks (bit i: byte i).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace stepscope {

// U+FFFD, which replaces bytes that are not UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// JSON's white space.
inline bool IsBlank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

struct CharMasks {
  uint64_t quotes = 0;
  uint64_t backslashes = 0;
  uint64_t brackets = 0;  // { } [ ]
};

#if defined(__SSE2__)

inline CharMasks MasksOf(const char* text) {
  const auto find = [](__m128i bytes, char wanted) {
    return static_cast<uint64_t>(static_cast<uint32_t>(
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted)))));
  };
  CharMasks masks;
  for (size_t part = 0; part < 4; ++part) {
    const __m128i bytes =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + part * 16));
    // Setting bit 5 makes '[' a '{' and ']' a '}'.
    const __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
    masks.quotes |= find(bytes, '"') << (part * 16);
    masks.backslashes |= find(bytes, '\\') << (part * 16);
    masks.brackets |= (find(folded, '{') | find(folded, '}')) << (part * 16);
  }
  return masks;
}

#else

inline CharMasks MasksOf(const char* text) {
  CharMasks masks;
  for (int i = 0; i < 64; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if (text[i] == '"') masks.quotes |= bit;
    if (text[i] == '\\') masks.backslashes |= bit;
    const char folded = static_cast<char>(text[i] | 0x20);
    if (folded == '{' || folded == '}') masks.brackets |= bit;
  }
  return masks;
}

#endif

}  // namespace stepscope
