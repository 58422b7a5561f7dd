// The parts of Protobuf's wire format that a digest needs: numbers, bytes, and
// fixed-size numbers. Each follows a key of field number and type.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kFixed32 = 5
};

inline void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

inline void PutKey(int field, WireType type, std::string& out) {
  PutVarint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type),
            out);
}

// Little endian.
inline void PutFixed(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i, value >>= 8) out += static_cast<char>(value);
}

inline void PutBytes(int field, std::string_view bytes, std::string& out) {
  PutKey(field, WireType::kBytes, out);
  PutVarint(bytes.size(), out);
  out += bytes;
}

// Maps numbers near 0, negative ones included, to small unsigned numbers.
inline uint64_t ZigZag(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1 ^ (~(value & 1) + 1));
}

// Takes a number from the front of `rest`. Returns false if there is none.
inline bool TakeVarint(std::string_view& rest, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}
inline bool TakeFixed(std::string_view& rest, size_t bytes, uint64_t& value) {
  if (rest.size() < bytes) return false;
  value = 0;
  for (size_t i = bytes; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(rest[i]);
  }
  rest.remove_prefix(bytes);
  return true;
}

struct WireField {
  int number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // if a number
  std::string_view bytes;  // if kBytes
};

// Takes a field from the front of `rest`. Returns false if it is cut off or has
// a type that protobuf no longer uses.
inline bool TakeField(std::string_view& rest, WireField& field) {
  uint64_t key = 0;
  if (!TakeVarint(rest, key) || key >> 3 == 0 || key >> 32 != 0) return false;
  field.number = static_cast<int>(key >> 3);
  field.type = static_cast<WireType>(key & 7);
  switch (field.type) {
    case WireType::kVarint:
      return TakeVarint(rest, field.value);
    case WireType::kFixed64:
      return TakeFixed(rest, 8, field.value);
    case WireType::kFixed32:
      return TakeFixed(rest, 4, field.value);
    case WireType::kBytes: {
      uint64_t size = 0;
      if (!TakeVarint(rest, size) || size > rest.size()) return false;
      field.bytes = rest.substr(0, size);
      rest.remove_prefix(size);
      return true;
    }
  }
  return false;
}

inline constexpr uint32_t kDigestMagic = 0x74676453;
inline constexpr uint32_t kDigestVersion = 1;

}  // namespace stepscope
