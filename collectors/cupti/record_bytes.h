// RecordBytes: the bytes of one activity record, read without leaving its
// bounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace stepscope {

class RecordBytes {
 public:
  explicit RecordBytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size(); }

  // Returns the record in the layout of the newest version. Fields beyond its
  // length are zero. `T` is a plain struct of CUPTI's header.
  template <typename T>
  T As() const {
    T record;
    const size_t size = std::min(bytes_.size(), sizeof(T));
    std::memcpy(static_cast<void*>(&record), bytes_.data(), size);
    if (size < sizeof(T)) {
      std::memset(reinterpret_cast<uint8_t*>(&record) + size, 0,
                  sizeof(T) - size);
    }
    return record;
  }

 private:
  std::span<const uint8_t> bytes_;
};

// Returns the number in an enumeration's field, which may be newer than our
// header.
template <typename Enum>
uint32_t NumberOf(const Enum& field) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t number;
  std::memcpy(&number, &field, sizeof(number));
  return number;
}

}  // namespace stepscope
