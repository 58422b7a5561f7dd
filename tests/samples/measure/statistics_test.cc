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

TEST(BootstrapMedianTest, StaysWithinTheValues) {
  const Interval interval = BootstrapMedian({1, 2, 3, 4, 100});
  EXPECT_GE(interval.low, 1);
  EXPECT_LE(interval.low, 2);
  EXPECT_GE(interval.high, 4);
  EXPECT_LE(interval.high, 100);
  EXPECT_TRUE(interval.Holds(3));
}

TEST(BootstrapMedianTest, OneValueTellsNothingAboutItsSpread) {
  EXPECT_TRUE(std::isinf(BootstrapMedian({7}).low));
  EXPECT_TRUE(BootstrapMedian({7}).Holds(1e9));
  EXPECT_TRUE(BootstrapMedian({}).Holds(0));
}

TEST(BootstrapMedianTest, SameValuesLeaveNoDoubt) {
  const Interval interval = BootstrapMedian({2, 2, 2});
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.high, 2);
}

// Of many samples of a known distribution, about 95 % of the intervals hold
// its median; the bootstrap of few values is a little too narrow.
TEST(BootstrapMedianTest, HoldsTheTrueMedianAboutAsOftenAsItSays) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(10, 2);
  int held = 0;
  constexpr int kTrials = 300;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(9);
    for (double& value : values) value = normal(random);
    held += BootstrapMedian(values).Holds(10);
  }
  EXPECT_GT(held, 0.85 * kTrials);
  EXPECT_LT(held, kTrials);
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
