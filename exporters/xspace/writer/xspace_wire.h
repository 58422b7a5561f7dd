// Appends fields in protobuf's wire format, as far as the XSpace writer needs
// it. The field numbers are those of xspace/proto/xplane.proto.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope {

inline constexpr size_t kMostVarintBytes = 10;

// Writes a varint at `at` and returns its end. REQUIRES: room for
// kMostVarintBytes.
inline char* PutVarint(uint64_t value, char* at) {
  while (value >= 0x80) {
    *at++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *at++ = static_cast<char>(value);
  return at;
}

inline void AppendVarint(uint64_t value, std::string& out) {
  char bytes[kMostVarintBytes];
  out.append(bytes, static_cast<size_t>(PutVarint(value, bytes) - bytes));
}

inline size_t VarintSize(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

inline void AppendIntField(int field, int64_t value, std::string& out) {
  AppendVarint(static_cast<uint64_t>(field) << 3, out);
  AppendVarint(static_cast<uint64_t>(value), out);
}

inline void AppendDoubleField(int field, double value, std::string& out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | 1, out);
  auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 0; i < 8; ++i, bits >>= 8) out += static_cast<char>(bits);
}

// Appends the head of a length-delimited field of `size` bytes.
inline void AppendHead(int field, size_t size, std::string& out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | 2, out);
  AppendVarint(size, out);
}

inline void AppendBytesField(int field, std::string_view bytes,
                             std::string& out) {
  AppendHead(field, bytes.size(), out);
  out += bytes;
}

}  // namespace stepscope
