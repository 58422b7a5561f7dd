#include <stepscope/clock.h>

#include <algorithm>
#include <cmath>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stepscope {
namespace internal {

constinit std::atomic<bool> g_ticks_are_tsc{false};

}  // namespace internal

namespace {

int64_t ReadNs(clockid_t id) noexcept {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// Source: Intel SDM vol. 3, "Invariant TSC"; AMD64 APM vol. 3, Fn8000_0007.
bool HasInvariantTsc() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
  return false;
#endif
}

}  // namespace

int64_t NowNs() noexcept { return ReadNs(CLOCK_REALTIME); }
int64_t MonotonicNs() noexcept { return ReadNs(CLOCK_MONOTONIC); }

ClockReading ReadClock() noexcept {
  // Even a counter that the processor calls invariant may jump, for example
  // when a hypervisor migrates the machine. Only sysfs tells whether the kernel
  // still trusts the counter. Sysfs is not read here, because
  // ClockMap::error_ns() shows a jump.
  static const bool use_tsc = HasInvariantTsc();
  internal::g_ticks_are_tsc.store(use_tsc, std::memory_order_relaxed);
  // Keep the reading with the smallest width of several tries: an interrupt
  // between two reads shifts the clocks against each other by its length.
  constexpr int kTries = 32;
  ClockReading best;
  best.width_ns = INT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    // Monotonic time is read first and last; the other two readings are
    // attributed to the middle between them.
    const int64_t before = ReadNs(CLOCK_MONOTONIC);
    const Ticks ticks_before = NowTicks();
    const int64_t epoch = ReadNs(CLOCK_REALTIME);
    const Ticks ticks_after = NowTicks();
    const int64_t after = ReadNs(CLOCK_MONOTONIC);
    if (after - before < best.width_ns) {
      best.ticks = ticks_before + (ticks_after - ticks_before) / 2;
      best.monotonic_ns = before + (after - before) / 2;
      best.epoch_ns = epoch;
      best.width_ns = after - before;
    }
  }
  return best;
}

ClockMap::ClockMap(const ClockReading& begin, const ClockReading& end)
    : begin_(begin), end_(end) {
  const double ticks = static_cast<double>(end.ticks - begin.ticks);
  const int64_t passed_ns = end.monotonic_ns - begin.monotonic_ns;
  if (end.ticks > begin.ticks && passed_ns > 0) {
    ns_per_tick_ = static_cast<double>(passed_ns) / ticks;
  }
  const int64_t epoch_passed_ns = end.epoch_ns - begin.epoch_ns;
  error_ns_ = std::abs(static_cast<double>(epoch_passed_ns - passed_ns)) +
              static_cast<double>(begin.width_ns + end.width_ns) / 2;
}

int64_t ClockMap::ToNs(Ticks ticks) const {
  // A double is exact enough for the distance: 2^53 ticks are about a month.
  const int64_t distance = static_cast<int64_t>(ticks - begin_.ticks);
  return begin_.epoch_ns +
         std::llround(static_cast<double>(distance) * ns_per_tick_);
}

Ticks ClockMap::ToTicks(int64_t epoch_ns) const {
  return begin_.ticks +
         static_cast<Ticks>(std::llround(
             static_cast<double>(epoch_ns - begin_.epoch_ns) / ns_per_tick_));
}

}  // namespace stepscope
