// WireReader: reads the fields of one protobuf message in order. Every length
// is checked against the size of the message. It reads the part of the wire
// format that XSpace uses; xspace_wire.h writes it.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace stepscope {

class WireReader {
 public:
  enum class Type : uint8_t { kVarint, kFixed64, kBytes, kFixed32 };

  explicit WireReader(std::string_view message) : rest_(message) {}

  // Moves to the next field. False at the end, or if the bytes are damaged.
  bool Next();
  // True if the bytes are damaged, for example cut off inside the last field.
  bool damaged() const { return damaged_; }

  uint32_t field() const { return field_; }
  Type type() const { return type_; }
  uint64_t number() const { return number_; }  // kVarint, kFixed64, kFixed32
  int64_t integer() const { return static_cast<int64_t>(number_); }
  double real() const { return std::bit_cast<double>(number_); }
  std::string_view bytes() const { return bytes_; }  // kBytes
  // The remaining bytes of a field that was cut off.
  std::string_view cut_bytes() const { return cut_; }

 private:
  bool Damaged() {
    damaged_ = true;
    rest_ = {};
    return false;
  }
  bool Varint(uint64_t* value);
  bool Fixed(size_t size);

  std::string_view rest_;
  std::string_view bytes_;
  std::string_view cut_;
  uint64_t number_ = 0;
  uint32_t field_ = 0;
  Type type_ = Type::kVarint;
  bool damaged_ = false;
};

inline bool WireReader::Varint(uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Little endian, as protobuf is.
inline bool WireReader::Fixed(size_t size) {
  if (rest_.size() < size) return Damaged();
  number_ = 0;
  for (size_t i = size; i-- > 0;)
    number_ = number_ << 8 | static_cast<unsigned char>(rest_[i]);
  rest_.remove_prefix(size);
  return true;
}

inline bool WireReader::Next() {
  if (rest_.empty()) return false;
  uint64_t key = 0;
  if (!Varint(&key) || key >> 3 == 0 || key >> 32 != 0) return Damaged();
  field_ = static_cast<uint32_t>(key >> 3);
  switch (key & 7) {
    case 0:
      type_ = Type::kVarint;
      return Varint(&number_) || Damaged();
    case 1:
      type_ = Type::kFixed64;
      return Fixed(8);
    case 2: {
      type_ = Type::kBytes;
      uint64_t size = 0;
      if (!Varint(&size)) return Damaged();
      if (size > rest_.size()) {
        cut_ = rest_;
        return Damaged();
      }
      bytes_ = rest_.substr(0, size);
      rest_.remove_prefix(size);
      return true;
    }
    case 5:
      type_ = Type::kFixed32;
      return Fixed(4);
    default:
      return Damaged();  // groups: obsolete, and no XSpace has them
  }
}

}  // namespace stepscope
