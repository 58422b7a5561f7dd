#include "background.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace stepscope::background_test {
namespace {

using namespace std::chrono_literals;

constexpr auto kLong = std::chrono::milliseconds(60s);

TEST(BackgroundTest, RunsJobsInOrderOnAThreadOfItsOwn) {
  Background background;
  std::vector<int> order;
  std::thread::id worker;
  ASSERT_TRUE(background.Add([&] {
    order.push_back(1);
    worker = std::this_thread::get_id();
  }));
  ASSERT_TRUE(background.Add([&] { order.push_back(2); }));
  ASSERT_TRUE(background.Wait(kLong));
  EXPECT_THAT(order, testing::ElementsAre(1, 2));
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(BackgroundTest, WaitingForNothingIsImmediate) {
  Background background;
  EXPECT_TRUE(background.Wait(0ms));
}

TEST(BackgroundTest, AWaitThatIsTooShortSaysSo) {
  Background background;
  std::promise<void> release;
  background.Add([&] { release.get_future().wait(); });
  EXPECT_FALSE(background.Wait(20ms));
  release.set_value();
  EXPECT_TRUE(background.Wait(kLong));
}

TEST(BackgroundTest, RefusesJobsBeyondThoseThatMayWait) {
  Background background;
  std::promise<void> release;
  std::promise<void> running;
  int ran = 0;
  background.Add([&] {
    running.set_value();
    release.get_future().wait();
  });
  running.get_future().wait();
  for (size_t i = 0; i < Background::kMaxWaiting; ++i) {
    EXPECT_TRUE(background.Add([&] { ++ran; }));
  }
  EXPECT_FALSE(background.Add([&] { ++ran; }));
  release.set_value();
  ASSERT_TRUE(background.Wait(kLong));
  EXPECT_EQ(ran, static_cast<int>(Background::kMaxWaiting));
}

TEST(BackgroundTest, ABusyThreadOutlivesItAndKeepsWhatItNeeds) {
  const auto release = std::make_shared<std::promise<void>>();
  const auto done = std::make_shared<std::promise<int>>();
  {
    Background background;
    background.Add([release, done] {
      release->get_future().wait();
      done->set_value(7);
    });
  }
  release->set_value();
  EXPECT_EQ(done->get_future().get(), 7);
}

TEST(BackgroundTest, ItsThreadTakesNoSignals) {
  Background background;
  sigset_t mask;
  background.Add([&] { pthread_sigmask(SIG_SETMASK, nullptr, &mask); });
  ASSERT_TRUE(background.Wait(kLong));
  EXPECT_EQ(sigismember(&mask, SIGINT), 1);
  EXPECT_EQ(sigismember(&mask, SIGXFSZ), 1);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGINT), 0);
}

}  // namespace
}  // namespace stepscope::background_test
