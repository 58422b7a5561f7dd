// The clock of a recording. Hooks store raw ticks, which take one instruction
// to read; a ClockMap, made from readings at both ends of the window, converts
// them to nanoseconds since the epoch.
//
// Ticks are the time stamp counter if the processor says that it is invariant
// (constant rate, running in every sleep state, equal on all cores), and
// otherwise CLOCK_MONOTONIC nanoseconds. All functions may be called from any
// thread, and from a forked child.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace stepscope {

namespace internal {
// True if the processor's counter is used. The first ReadClock() sets it, and
// it never changes afterwards.
extern std::atomic<bool> g_ticks_are_tsc;
}  // namespace internal

using Ticks = uint64_t;

// The current time in ticks. REQUIRES: ReadClock() was called before, because
// its first call decides what a tick is.
inline Ticks NowTicks() noexcept {
#if defined(__x86_64__)
  if (internal::g_ticks_are_tsc.load(std::memory_order_relaxed)) {
    // The same as __rdtsc() of <x86intrin.h>. That header is not included,
    // because it declares every vector instruction and doubles the compile time
    // of all files that include this one.
    return __builtin_ia32_rdtsc();
  }
#endif
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<Ticks>(t.tv_sec) * 1000000000u +
         static_cast<Ticks>(t.tv_nsec);
}

// Nanoseconds since the epoch (CLOCK_REALTIME). For step marks and code that is
// not called often.
int64_t NowNs() noexcept;
// Nanoseconds of CLOCK_MONOTONIC. Safe in signal handlers.
int64_t MonotonicNs() noexcept;

// One moment on three clocks, from the narrowest of several tries. `width_ns`
// is the time between the first and the last read of that try.
struct ClockReading {
  Ticks ticks = 0;
  int64_t monotonic_ns = 0;
  int64_t epoch_ns = 0;
  int64_t width_ns = 0;
};

// Reads all clocks; about 10 us.
ClockReading ReadClock() noexcept;

// Converts ticks to nanoseconds since the epoch, anchored at the reading at the
// start of the window. The rate comes from the monotonic clock, so a correction
// of the system's time inside the window does not distort durations.
class ClockMap {
 public:
  // REQUIRES: end was read after begin.
  ClockMap(const ClockReading& begin, const ClockReading& end);

  int64_t ToNs(Ticks ticks) const;
  Ticks ToTicks(int64_t epoch_ns) const;

  int64_t begin_ns() const { return begin_.epoch_ns; }
  int64_t end_ns() const { return ToNs(end_.ticks); }
  double ns_per_tick() const { return ns_per_tick_; }

  // How much the two readings disagree about the time between them: the
  // correction of the system's clock, plus the widths of both readings.
  double error_ns() const { return error_ns_; }

 private:
  ClockReading begin_;
  ClockReading end_;
  double ns_per_tick_ = 1;
  double error_ns_ = 0;
};

}  // namespace stepscope
