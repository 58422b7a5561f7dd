// The clock of a recording. Hooks store raw ticks, which take one instruction
// to read; a ClockMap, made from readings at both ends of the window, converts
// them to nanoseconds since the epoch.
//
// Ticks are the time stamp counter where the processor says it is invariant
// (constant rate, running in every sleep state, equal on all cores), and
// CLOCK_MONOTONIC nanoseconds elsewhere. Any thread may call anything here; a
// forked child may go on doing so.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace stepscope {

namespace internal {
// True once the processor's counter was found usable; decided by the first
// ReadClock() and never changed after.
extern std::atomic<bool> g_ticks_are_tsc;
}  // namespace internal

using Ticks = uint64_t;

// The current time in ticks. REQUIRES: ReadClock() was called before: the first
// call decides what a tick is.
inline Ticks NowTicks() noexcept {
#if defined(__x86_64__)
  if (internal::g_ticks_are_tsc.load(std::memory_order_relaxed)) {
    // What __rdtsc() of <x86intrin.h> is. That header declares every vector
    // instruction and doubles the compile time of who includes this one.
    return __builtin_ia32_rdtsc();
  }
#endif
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<Ticks>(t.tv_sec) * 1000000000u +
         static_cast<Ticks>(t.tv_nsec);
}

// Nanoseconds since the epoch (CLOCK_REALTIME): for slow paths and marks.
int64_t NowNs() noexcept;
// Nanoseconds of CLOCK_MONOTONIC; for signal handlers, too.
int64_t MonotonicNs() noexcept;

// One moment on three clocks: the closest of several tries. `width_ns` is the
// time between its first and its last read.
struct ClockReading {
  Ticks ticks = 0;
  int64_t monotonic_ns = 0;
  int64_t epoch_ns = 0;
  int64_t width_ns = 0;
};

// Reads all clocks; about 10 us.
ClockReading ReadClock() noexcept;

// Ticks to nanoseconds since the epoch, anchored at the reading at the window's
// begin. The rate comes from the monotonic clock, so that a correction of the
// system's time inside the window distorts nothing.
class ClockMap {
 public:
  // REQUIRES: end was read after begin.
  ClockMap(const ClockReading& begin, const ClockReading& end);

  int64_t ToNs(Ticks ticks) const;
  Ticks ToTicks(int64_t epoch_ns) const;

  int64_t begin_ns() const { return begin_.epoch_ns; }
  int64_t end_ns() const { return ToNs(end_.ticks); }
  double ns_per_tick() const { return ns_per_tick_; }

  // How far the readings disagree about the time between them: corrections of
  // the system's clock, plus the width of both readings.
  double error_ns() const { return error_ns_; }

 private:
  ClockReading begin_;
  ClockReading end_;
  double ns_per_tick_ = 1;
  double error_ns_ = 0;
};

}  // namespace stepscope
