// Image: one decoded picture. Random: numbers that depend only on a seed, so
// that a run can be repeated exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace resnet {

struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // rows of RGB, height * width * 3 bytes

  const uint8_t* Row(int y) const {
    return pixels.data() + static_cast<size_t>(y) * width * 3;
  }
  uint8_t* Row(int y) {
    return pixels.data() + static_cast<size_t>(y) * width * 3;
  }
  bool operator==(const Image&) const = default;
};

// A counter put through a mixing function. It is cheap to make, so every
// picture and every draw of a picture has its own. The standard library's
// distributions differ between implementations and could not be repeated.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : state_(Mix(seed ^ Mix(stream))) {}

  uint64_t Next() { return Mix(state_ += kStep); }
  // Returns a number in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  double Uniform(double low, double high) {
    return low + (high - low) * Uniform();
  }
  // Returns a number in [0, limit). REQUIRES: limit > 0.
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(Uniform() * static_cast<double>(limit));
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  // The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
  static constexpr uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  uint64_t state_;
};

}  // namespace resnet
