// From CUPTI's nanoseconds to ours: by pairs of readings at both ends of a
// window. No timestamp callback is registered: with one, CUPTI loses records
// from CUDA 12.6 U2 to 13.0.
#pragma once

#include <stepscope/clock.h>

#include <cstdint>

#include "api/cupti_api.h"

namespace stepscope {

// One moment on both clocks.
struct CuptiReading {
  Ticks ticks = 0;
  uint64_t cupti_ns = 0;
  Ticks width = 0;  // how far apart the two could be
  bool valid = false;
};

// The tightest of several tries; not valid if CUPTI does not tell the time.
CuptiReading ReadCuptiClock(const CuptiApi& api) noexcept;

class CuptiTimes {
 public:
  // REQUIRES: both readings are valid. If the second is not later than the
  // first on CUPTI's clock, only the offset is used.
  CuptiTimes(const CuptiReading& begin, const CuptiReading& end,
             const ClockMap& clock);

  // Nanoseconds since the epoch; linear, so it orders as CUPTI does.
  int64_t ToNs(uint64_t cupti_ns) const {
    // Unsigned, as a damaged record may hold any number.
    const uint64_t passed = cupti_ns - cupti_begin_ns_;
    const auto drifted = static_cast<int64_t>(
        static_cast<double>(static_cast<int64_t>(passed)) * drift_);
    return static_cast<int64_t>(static_cast<uint64_t>(epoch_begin_ns_) +
                                passed + static_cast<uint64_t>(drifted));
  }

  // By how much CUPTI's clock runs slower than ours, as a fraction. A clock
  // that was set during the window shows here.
  double drift() const { return drift_; }
  // The same over the whole window, 0 where the readings are not sure enough to
  // tell.
  double drift_ns() const { return drift_ns_; }

 private:
  uint64_t cupti_begin_ns_ = 0;
  int64_t epoch_begin_ns_ = 0;
  double drift_ = 0;
  double drift_ns_ = 0;
};

}  // namespace stepscope
