#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace measure {
namespace {

TEST(MedianTest, IsTheMiddleOne) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({4}), 4);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 6}), 5.5);
}

TEST(QuantileTest, LiesBetweenNeighbours) {
  EXPECT_EQ(Quantile({3, 1, 2}, 0), 1);
  EXPECT_EQ(Quantile({3, 1, 2}, 1), 3);
  EXPECT_DOUBLE_EQ(Quantile({3, 1, 2}, 0.25), 1.5);
}

TEST(MedianIntervalTest, OfManyStaysWithinTheValues) {
  const Interval interval = MedianInterval({1, 2, 3, 3, 4, 100});
  EXPECT_GE(interval.low, 1);
  EXPECT_LE(interval.low, 2);
  EXPECT_GE(interval.high, 4);
  EXPECT_LE(interval.high, 100);
  EXPECT_TRUE(interval.Holds(3));
}

TEST(MedianIntervalTest, OneValueTellsNothingAboutItsSpread) {
  EXPECT_TRUE(std::isinf(MedianInterval({7}).low));
  EXPECT_TRUE(MedianInterval({7}).Holds(1e9));
  EXPECT_TRUE(MedianInterval({}).Holds(0));
}

TEST(MedianIntervalTest, SameValuesLeaveNoDoubt) {
  const Interval interval = MedianInterval({2, 2, 2});
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.high, 2);
}

// Of many samples of a known distribution, about 95 % of the intervals hold its
// median; the bootstrap of few values is a little too narrow.
TEST(MedianIntervalTest, HoldsTheTrueMedianAboutAsOftenAsItSays) {
  for (const size_t count : {2, 3, 5, 6, 9, 15}) {
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal(10, 2);
    int held = 0;
    constexpr int kTrials = 300;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> values(count);
      for (double& value : values) value = normal(random);
      held += MedianInterval(values).Holds(10);
    }
    EXPECT_GT(held, 0.9 * kTrials) << count;
    EXPECT_LT(held, kTrials) << count;
  }
}

// Table values of Student's t.
TEST(StudentFactorTest, AgreesWithTheTable) {
  EXPECT_NEAR(StudentFactor(0.95, 1), 12.706, 0.13);
  EXPECT_NEAR(StudentFactor(0.95, 4), 2.776, 0.01);
  EXPECT_NEAR(StudentFactor(0.99, 4), 4.604, 0.01);
  EXPECT_NEAR(StudentFactor(0.95, 30), 2.042, 0.01);
  EXPECT_NEAR(StudentFactor(0.95, 1e6), 1.960, 0.01);
}

}  // namespace
}  // namespace measure
