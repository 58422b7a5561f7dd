// 64-bit FNV-1a. Unlike std::hash it gives the same value on every build and
// host. It detects every change of a single byte and nearly every other change.
#pragma once

#include <cstdint>
#include <string_view>

namespace stepscope {

inline constexpr uint64_t kFnvOfNothing = 0xcbf29ce484222325;

// Returns the hash of `bytes`, or, given the `hash` of earlier bytes, the hash
// of those followed by `bytes`.
inline uint64_t FnvHash(std::string_view bytes, uint64_t hash = kFnvOfNothing) {
  for (char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// The hash of several texts and numbers.
class FnvHasher {
 public:
  void Add(std::string_view text) {
    value_ = FnvHash(std::string_view("\0", 1), FnvHash(text, value_));
  }
  void Add(int64_t number) {
    for (int i = 0; i < 8; ++i) {
      const char byte = static_cast<char>(number >> (8 * i));
      value_ = FnvHash({&byte, 1}, value_);
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = kFnvOfNothing;
};

}  // namespace stepscope
