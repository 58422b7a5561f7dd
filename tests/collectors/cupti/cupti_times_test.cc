#include "cupti_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "collectors/cupti/decode_fixture.h"

namespace stepscope::cupti_times_test {
namespace {

CuptiReading At(int64_t our_ns, uint64_t cupti_ns) {
  return {
      .ticks = static_cast<Ticks>(our_ns), .cupti_ns = cupti_ns, .valid = true};
}

TEST(CuptiTimesTest, BothEndsOfTheWindowLandOnTheirReadings) {
  const CuptiTimes times(At(10'000'000, 777), At(1'010'000'500, 1'000'000'777),
                         PlainClock());
  EXPECT_EQ(times.ToNs(777), 10'000'000);
  EXPECT_EQ(times.ToNs(1'000'000'777), 1'010'000'500);
}

TEST(CuptiTimesTest, InBetweenItIsLinearToTheNanosecond) {
  // CUPTI's clock is 100 ppm slow over ten seconds.
  const CuptiTimes times(At(0, 1'000), At(10'001'000'000, 10'000'001'000),
                         PlainClock());
  EXPECT_NEAR(times.drift(), 1e-4, 1e-12);
  for (uint64_t at = 1'000; at <= 10'000'001'000; at += 123'456'789) {
    const double exact = static_cast<double>(at - 1'000) * 1.0001;
    EXPECT_NEAR(static_cast<double>(times.ToNs(at)), exact, 1.0);
  }
}

TEST(CuptiTimesTest, TimesBeforeTheFirstReadingAreConvertedToo) {
  const CuptiTimes times(At(5'000'000, 1'000'000), At(6'000'000, 2'000'000),
                         PlainClock());
  EXPECT_EQ(times.ToNs(999'000), 4'999'000);
}

TEST(CuptiTimesTest, OneReadingGivesTheOffsetAlone) {
  const CuptiTimes times(At(5'000'000, 1'000), At(5'000'000, 1'000),
                         PlainClock());
  EXPECT_EQ(times.drift(), 0);
  EXPECT_EQ(times.ToNs(2'000), 5'001'000);
}

TEST(CuptiTimesTest, AClockThatWentBackGivesTheOffsetAlone) {
  const CuptiTimes times(At(5'000'000, 9'000), At(6'000'000, 1'000),
                         PlainClock());
  EXPECT_EQ(times.drift(), 0);
}

TEST(CuptiTimesTest, ADifferenceTheReadingsCannotTellIsNoDrift) {
  CuptiReading end = At(10'400, 10'000);
  end.width = 500;
  const CuptiTimes times(At(0, 0), end, PlainClock());
  EXPECT_EQ(times.drift(), 0);
  EXPECT_EQ(times.drift_ns(), 0);
  end.width = 300;
  EXPECT_EQ(CuptiTimes(At(0, 0), end, PlainClock()).drift_ns(), 400);
}

TEST(CuptiTimesTest, ItKeepsTheOrderOfAnyTwoTimes) {
  const CuptiTimes times(At(0, 0), At(999'000'000, 1'000'000'000),
                         PlainClock());
  for (uint64_t at = 0; at < 3'000; ++at) {
    EXPECT_LE(times.ToNs(at), times.ToNs(at + 1));
  }
}

TEST(CuptiTimesTest, NoNumberOverflows) {
  const CuptiTimes times(At(0, 5), At(2'000'000'000, 1'000'000'005),
                         PlainClock());
  (void)times.ToNs(0);
  (void)times.ToNs(UINT64_MAX);
  (void)times.ToNs(UINT64_MAX / 2);
  EXPECT_LE(std::abs(times.drift()), 0.5);
}

TEST(ReadCuptiClockTest, ItIsTheFakesTime) {
  ReadClock();
  FakeCupti fake;
  fake.SetClockOffset(1'000'000'000'000);
  const CuptiReading reading = ReadCuptiClock(*fake.Api());
  ASSERT_TRUE(reading.valid);
  EXPECT_NEAR(
      static_cast<double>(reading.cupti_ns) - static_cast<double>(NowNs()),
      1e12, 1e9);
}

TEST(ReadCuptiClockTest, ARefusalIsNoReading) {
  FakeCupti fake;
  fake.FailAll("GetTimestamp", CUPTI_ERROR_UNKNOWN);
  EXPECT_FALSE(ReadCuptiClock(*fake.Api()).valid);
}

}  // namespace
}  // namespace stepscope::cupti_times_test
