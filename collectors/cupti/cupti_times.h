// CuptiTimes: converts CUPTI's timestamps to nanoseconds since the epoch, using
// readings of both clocks at both ends of a window. No timestamp callback is
// registered, because with one CUPTI of CUDA 12.6 U2 to 13.0 loses records.
#pragma once

#include <stepscope/clock.h>

#include <cstdint>

#include "api/cupti_api.h"

namespace stepscope {

// One moment on both clocks.
struct CuptiReading {
  Ticks ticks = 0;
  uint64_t cupti_ns = 0;
  Ticks width = 0;  // the time between the two readings, at most
  bool valid = false;
};

// The closest of several tries; not valid if CUPTI returns no time.
CuptiReading ReadCuptiClock(const CuptiApi& api) noexcept;

class CuptiTimes {
 public:
  // REQUIRES: both readings are valid. If the second is not later than the
  // first on CUPTI's clock, only the offset is used.
  CuptiTimes(const CuptiReading& begin, const CuptiReading& end,
             const ClockMap& clock);

  // Converts to nanoseconds since the epoch. Monotonic, so it keeps the order
  // of records.
  int64_t ToNs(uint64_t cupti_ns) const {
    // Unsigned, because a damaged record may contain any number.
    const uint64_t passed = cupti_ns - cupti_begin_ns_;
    const auto drifted = static_cast<int64_t>(
        static_cast<double>(static_cast<int64_t>(passed)) * drift_);
    return static_cast<int64_t>(static_cast<uint64_t>(epoch_begin_ns_) +
                                passed + static_cast<uint64_t>(drifted));
  }

  // The fraction by which CUPTI's clock is slower than the host's. If a clock
  // was set during the window, this value is large.
  double drift() const { return drift_; }
  // The drift over the whole window, in ns; 0 if it is within the uncertainty
  // of the readings.
  double drift_ns() const { return drift_ns_; }

 private:
  uint64_t cupti_begin_ns_ = 0;
  int64_t epoch_begin_ns_ = 0;
  double drift_ = 0;
  double drift_ns_ = 0;
};

}  // namespace stepscope
