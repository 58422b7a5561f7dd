#include <gtest/gtest.h>
#include <stepscope/clock.h>
#include <unistd.h>

#include <cstdlib>

namespace stepscope::clock_test {
namespace {

TEST(ClockTest, TicksAgreeWithTheSystemsClockOverAWindow) {
  const ClockReading begin = ReadClock();
  usleep(20000);
  const int64_t now_ns = NowNs();
  const Ticks ticks = NowTicks();
  usleep(20000);
  const ClockMap map(begin, ReadClock());
  EXPECT_LT(std::llabs(map.ToNs(ticks) - now_ns), 5000000);
  EXPECT_EQ(map.ToNs(begin.ticks), begin.epoch_ns);
  EXPECT_GE(map.error_ns(), 0);
}

TEST(ClockTest, TurnsBothWays) {
  const ClockMap map(
      {.ticks = 1000, .monotonic_ns = 50, .epoch_ns = 7000000},
      {.ticks = 3001000, .monotonic_ns = 1000050, .epoch_ns = 8000000});
  EXPECT_EQ(map.ToNs(1000), 7000000);
  EXPECT_EQ(map.ToNs(4000), 7001000);
  EXPECT_EQ(map.ToNs(0), 7000000 - 333);  // also before the window
  EXPECT_EQ(map.ToTicks(7001000), 4000u);
  EXPECT_EQ(map.end_ns(), 8000000);
  EXPECT_DOUBLE_EQ(map.error_ns(), 0);
}

TEST(ClockTest, AStepOfTheSystemsTimeShowsInTheErrorAndBendsNothing) {
  const ClockMap map({.ticks = 0, .monotonic_ns = 0, .epoch_ns = 1000000000},
                     {.ticks = 1000000,
                      .monotonic_ns = 1000000,
                      .epoch_ns = 1000000000 + 6000000,
                      .width_ns = 100});
  EXPECT_EQ(map.ToNs(500000), 1000500000);
  EXPECT_DOUBLE_EQ(map.error_ns(), 5000050);
}

TEST(ClockTest, AnEmptyWindowStillTurnsTicksIntoTimes) {
  const ClockReading once = ReadClock();
  const ClockMap map(once, once);
  EXPECT_EQ(map.ToNs(once.ticks), once.epoch_ns);
}

}  // namespace
}  // namespace stepscope::clock_test
