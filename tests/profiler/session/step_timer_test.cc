#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/step_timer.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace stepscope::step_timer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Feeds a timer with steps of known length.
class StepTimerTest : public ::testing::Test {
 protected:
  StepTimerTest() {
    const ClockReading begin = ReadClock();
    usleep(20'000);
    ns_per_tick_ = ClockMap(begin, ReadClock()).ns_per_tick();
    timer_ = std::make_unique<StepTimer>();
    now_ = NowTicks();
  }

  void Add(double ms, bool off = true) {
    now_ += static_cast<Ticks>(std::llround(ms * 1e6 / ns_per_tick_));
    timer_->Add(now_, off);
  }

  // The rate of the clock is known only after some time.
  RunTimes Times() {
    usleep(20'000);
    return timer_->Times();
  }

  double ns_per_tick_ = 1;
  std::unique_ptr<StepTimer> timer_;
  Ticks now_ = 0;
};

double Ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

TEST_F(StepTimerTest, KeepsTheDistributionAndTheSlowSteps) {
  Add(500);  // step 0 includes the time before the loop
  for (int i = 1; i < 200; ++i) Add(i == 150 ? 31 : i % 2 == 0 ? 10 : 10.4);
  const RunTimes times = Times();
  EXPECT_EQ(times.steps, 200);
  EXPECT_EQ(times.timed, 199);
  EXPECT_NEAR(Ms(times.all_ns), 98 * 10 + 100 * 10.4 + 31, 20);
  EXPECT_NEAR(Ms(times.p5_ns), 10, 0.1);
  EXPECT_NEAR(Ms(times.p95_ns), 10.4, 0.1);
  EXPECT_NEAR(Ms(times.max_ns), 31, 0.1);
  EXPECT_EQ(times.max_step, 150);
  ASSERT_THAT(times.slow, SizeIs(1));
  EXPECT_EQ(times.slow[0].number, 150);
  EXPECT_NEAR(Ms(times.slow[0].ns), 31, 0.1);
  EXPECT_NEAR(Ms(times.slow[0].usual_ns), 10.4, 0.1);
  EXPECT_NEAR(Ms(times.slow[0].begin_ns), 75 * 10.4 + 74 * 10, 20);
}

TEST_F(StepTimerTest, CountsFromTheNumberOfTheFirstStep) {
  timer_ = std::make_unique<StepTimer>(1000);
  now_ = NowTicks();
  Add(500);  // includes the time before the loop
  for (int i = 1; i < 100; ++i) {
    Add(i == 50 ? 30 : 10, /*off=*/i < 60 || i >= 70);
  }
  EXPECT_EQ(timer_->next_step(), 1100);
  const RunTimes times = Times();
  EXPECT_EQ(times.first_step, 1000);
  EXPECT_EQ(times.end_step(), 1100);
  EXPECT_EQ(times.timed, 89);
  EXPECT_EQ(times.max_step, 1050);
  ASSERT_THAT(times.slow, SizeIs(1));
  EXPECT_EQ(times.slow[0].number, 1050);
  ASSERT_THAT(times.recorded, SizeIs(1));
  EXPECT_EQ(times.recorded[0].first, 1060);
  EXPECT_EQ(times.recorded[0].end, 1070);
}

TEST_F(StepTimerTest, RecordedStepsAreNeitherUsualNorSlow) {
  for (int i = 0; i < 100; ++i) Add(i >= 3 && i < 9 ? 50 : 10, i < 3 || i >= 9);
  const RunTimes times = Times();
  EXPECT_EQ(times.timed, 93);
  EXPECT_NEAR(Ms(times.max_ns), 10, 0.1);
  EXPECT_THAT(times.slow, IsEmpty());
  ASSERT_THAT(times.recorded, SizeIs(1));
  EXPECT_EQ(times.recorded[0].first, 3);
  EXPECT_EQ(times.recorded[0].end, 9);
}

TEST_F(StepTimerTest, ALongRunKeepsItsSlowStepsInBoundedMemory) {
  constexpr int64_t kSteps = 5 * StepTimer::kBlock + 77;
  for (int64_t i = 0; i < kSteps; ++i) Add(i % 10'000 == 9'999 ? 3 : 1);
  const RunTimes times = Times();
  EXPECT_EQ(times.steps, kSteps);
  EXPECT_EQ(times.timed, kSteps - 1);
  EXPECT_NEAR(Ms(times.median_ns), 1, 0.01);
  ASSERT_THAT(times.slow, SizeIs(4));
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(times.slow[static_cast<size_t>(i)].number, 10'000 * i + 9'999);
  }
  EXPECT_EQ(times.dropped, 0);
}

TEST_F(StepTimerTest, OfTooManySlowStepsTheLeastSlowAreForgotten) {
  const int64_t steps = 4 * static_cast<int64_t>(StepTimer::kMostSlow);
  for (int64_t i = 0; i < steps; ++i) {
    Add(i % 10'000 == 9'999 ? 30 : i % 3 == 0 ? 1.5 : 1);
  }
  const RunTimes times = Times();
  EXPECT_GT(times.dropped, 0);
  EXPECT_LE(times.slow.size(), StepTimer::kMostSlow);
  int64_t large = 0;
  for (const SlowStep& step : times.slow) large += step.ns > 20'000'000;
  EXPECT_EQ(large, steps / 10'000);
  EXPECT_TRUE(std::ranges::is_sorted(times.slow, {}, &SlowStep::number));
}

// If steps become longer, the new length is usual from then on.
TEST_F(StepTimerTest, TheUsualStepMayChangeWithTime) {
  for (int i = 0; i < 6000; ++i) Add(i < 3000 ? 1 : 4);
  const RunTimes times = Times();
  // Near the change, the median is one of the two lengths.
  EXPECT_LE(times.slow.size(), StepTimer::kBlock / 8);
}

TEST_F(StepTimerTest, WhatWasSwitchedBetweenStepsBelongsToNone) {
  for (int i = 0; i < 10; ++i) Add(10);
  now_ += static_cast<Ticks>(std::llround(80e6 / ns_per_tick_));
  timer_->Restart(now_);
  Add(10);
  EXPECT_NEAR(Ms(Times().max_ns), 10, 0.1);
}

TEST_F(StepTimerTest, ACounterThatRunsBackGivesAStepOfNoTime) {
  Add(10);
  timer_->Add(now_ - 1000, true);
  Add(10);
  EXPECT_NEAR(Ms(Times().max_ns), 10, 0.1);
}

}  // namespace
}  // namespace stepscope::step_timer_test
