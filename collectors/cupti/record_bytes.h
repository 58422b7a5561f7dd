// RecordBytes: one activity record, read within its bounds.
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

  // The record as the newest version lays it out; fields this one is too short
  // for are zero. Record types are plain data of CUPTI's header.
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

// The number in a field of an enumeration, which may be one we have no name
// for.
template <typename Enum>
uint32_t NumberOf(const Enum& field) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t number;
  std::memcpy(&number, &field, sizeof(number));
  return number;
}

}  // namespace stepscope
