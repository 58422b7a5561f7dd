#include "nvtx_text.h"

#include <bit>
#include <charconv>

namespace stepscope {
namespace {

// Writes one character and returns its number of bytes. A wchar_t is a 32-bit
// code point here. Invalid code points become U+FFFD.
size_t PutCharacter(uint32_t c, char (&out)[4]) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
  if (c < 0x80) {
    out[0] = static_cast<char>(c);
    return 1;
  }
  const size_t size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = size - 1; i > 0; --i, c >>= 6) {
    out[i] = static_cast<char>(0x80 | (c & 0x3f));
  }
  // 0xc0, 0xe0 or 0xf0: the number of leading ones is the number of bytes.
  out[0] = static_cast<char>((0xf00 >> size & 0xff) | c);
  return size;
}

template <typename Number>
std::string ShortestText(Number number) {
  char text[40];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), number);
  return error == std::errc() ? std::string(text, end) : std::string();
}

}  // namespace

std::string_view ToUtf8(const wchar_t* text, std::span<char> out) noexcept {
  size_t used = 0;
  for (; text != nullptr && *text != L'\0'; ++text) {
    char bytes[4];
    const size_t size = PutCharacter(static_cast<uint32_t>(*text), bytes);
    if (size > out.size() - used) break;
    for (size_t i = 0; i < size; ++i) out[used++] = bytes[i];
  }
  return {out.data(), used};
}

std::string PayloadText(NvtxPayload type, uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  switch (type) {
    case NvtxPayload::kUint64:
      return ShortestText(bits);
    case NvtxPayload::kInt64:
      return ShortestText(static_cast<int64_t>(bits));
    case NvtxPayload::kDouble:
      return ShortestText(std::bit_cast<double>(bits));
    case NvtxPayload::kUint32:
      return ShortestText(low);
    case NvtxPayload::kInt32:
      return ShortestText(static_cast<int32_t>(low));
    case NvtxPayload::kFloat:
      return ShortestText(std::bit_cast<float>(low));
    case NvtxPayload::kNone:
      break;
  }
  return "";
}

}  // namespace stepscope
