#include "buffer_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace stepscope {
namespace {

TEST(BufferPoolTest, ABlockGoesOutComesBackFullAndIsHandedOver) {
  BufferPool pool;
  pool.Open(1 << 20, 1 << 16);
  size_t bytes = 0;
  uint8_t* data = pool.Request(&bytes);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(bytes, size_t{1} << 16);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 8, 0u);
  std::memset(data, 7, bytes);
  EXPECT_EQ(pool.blocks_out(), 1);
  pool.Complete(data, 100);
  const BufferPool::Window window = pool.Close();
  ASSERT_EQ(window.full.size(), 1u);
  EXPECT_EQ(window.full[0].data, data);
  EXPECT_EQ(window.full[0].valid_bytes, 100u);
  EXPECT_EQ(window.refused + window.still_out, 0);
}

TEST(BufferPoolTest, AtTheLimitCuptiGetsNoneAndItIsCounted) {
  BufferPool pool;
  pool.Open(3 * 4096, 4096);
  size_t bytes = 0;
  for (int i = 0; i < 3; ++i) EXPECT_NE(pool.Request(&bytes), nullptr);
  for (int i = 0; i < 5; ++i) {
    bytes = 99;
    EXPECT_EQ(pool.Request(&bytes), nullptr);
    EXPECT_EQ(bytes, 0u);
  }
  EXPECT_EQ(pool.Close().refused, 5);
}

TEST(BufferPoolTest, AFullBlockIsNotHandedOutAgainBeforeItWasDecoded) {
  BufferPool pool;
  pool.Open(4096, 4096);
  size_t bytes = 0;
  uint8_t* data = pool.Request(&bytes);
  pool.Complete(data, 10);
  EXPECT_EQ(pool.Request(&bytes), nullptr);
  const BufferPool::Window window = pool.Close();
  pool.Open(4096, 4096);
  EXPECT_EQ(pool.Request(&bytes), nullptr);  // still being decoded
  pool.Return(window.full);
  EXPECT_EQ(pool.Request(&bytes), data);
}

TEST(BufferPoolTest, AnEmptyBlockThatComesBackIsFreeAgain) {
  BufferPool pool;
  pool.Open(4096, 4096);
  size_t bytes = 0;
  uint8_t* data = pool.Request(&bytes);
  pool.Complete(data, 0);
  EXPECT_EQ(pool.Request(&bytes), data);
  pool.Complete(data, 0);
  EXPECT_TRUE(pool.Close().full.empty());
}

TEST(BufferPoolTest, BetweenWindowsThereAreNone) {
  BufferPool pool;
  size_t bytes = 0;
  EXPECT_EQ(pool.Request(&bytes), nullptr);
  pool.Open(4096, 4096);
  (void)pool.Close();
  EXPECT_EQ(pool.Request(&bytes), nullptr);
  EXPECT_EQ(pool.blocks(), 0);
}

TEST(BufferPoolTest, ABlockOfAnEarlierWindowBelongsToTheOneItComesBackIn) {
  BufferPool pool;
  pool.Open(2 * 4096, 4096);
  size_t bytes = 0;
  uint8_t* kept = pool.Request(&bytes);
  EXPECT_EQ(pool.Close().still_out, 1);
  pool.Trim();
  EXPECT_EQ(pool.blocks(), 1);  // CUPTI holds it
  pool.Open(2 * 4096, 4096);
  uint8_t* other = pool.Request(&bytes);
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other, kept);
  std::memset(kept, 1, bytes);  // as CUPTI may
  pool.Complete(kept, 10);
  pool.Complete(other, 20);
  const BufferPool::Window window = pool.Close();
  ASSERT_EQ(window.full.size(), 2u);
  EXPECT_EQ(window.full[0].data, kept);
  EXPECT_EQ(window.still_out, 0);
}

TEST(BufferPoolTest, ABlockThatComesBackBetweenWindowsIsFree) {
  BufferPool pool;
  pool.Open(4096, 4096);
  size_t bytes = 0;
  uint8_t* kept = pool.Request(&bytes);
  (void)pool.Close();
  pool.Complete(kept, 10);
  pool.Open(4096, 4096);
  EXPECT_EQ(pool.Request(&bytes), kept);
  EXPECT_TRUE(pool.Close().full.empty());
}

TEST(BufferPoolTest, WhatCuptiNeverGotIsIgnored) {
  BufferPool pool;
  pool.Open(4096, 4096);
  uint8_t stranger[16];
  pool.Complete(stranger, 16);
  pool.Complete(nullptr, 16);
  size_t bytes = 0;
  uint8_t* data = pool.Request(&bytes);
  pool.Complete(data, 10);
  pool.Complete(data, 10);  // twice
  EXPECT_EQ(pool.Close().full.size(), 1u);
}

TEST(BufferPoolTest, MoreThanTheBlockHoldsIsCutToIt) {
  BufferPool pool;
  pool.Open(4096, 4096);
  size_t bytes = 0;
  pool.Complete(pool.Request(&bytes), 100000);
  EXPECT_EQ(pool.Close().full[0].valid_bytes, 4096u);
}

TEST(BufferPoolTest, ASillyLimitStillGivesOneSmallBlock) {
  BufferPool pool;
  pool.Open(-5, 0);
  size_t bytes = 0;
  EXPECT_NE(pool.Request(&bytes), nullptr);
  EXPECT_EQ(bytes, 4096u);
  EXPECT_EQ(pool.Request(&bytes), nullptr);
}

TEST(BufferPoolTest, AnotherBlockSizeReplacesFreeBlocks) {
  BufferPool pool;
  pool.Open(4 * 4096, 4096);
  size_t bytes = 0;
  uint8_t* data = pool.Request(&bytes);
  pool.Complete(data, 0);
  (void)pool.Close();
  pool.Open(4 * 8192, 8192);
  ASSERT_NE(pool.Request(&bytes), nullptr);
  EXPECT_EQ(bytes, 8192u);
  EXPECT_EQ(pool.blocks(), 1);
}

// Threads that request, write and complete while windows open and close: no
// block has two owners. Under the thread sanitizer this is the race test.
TEST(BufferPoolTest, ManyThreadsNeverShareABlock) {
  BufferPool pool;
  std::atomic<bool> stop{false};
  std::atomic<int> clashes{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto mark = static_cast<uint8_t>(t + 1);
      while (!stop) {
        size_t bytes = 0;
        uint8_t* data = pool.Request(&bytes);
        if (data == nullptr) {
          std::this_thread::yield();
          continue;
        }
        std::memset(data, mark, bytes);
        for (size_t i = 0; i < bytes; i += 512) {
          if (data[i] != mark) ++clashes;
        }
        pool.Complete(data, 64);
      }
    });
  }
  std::mt19937 random(7);
  for (int window = 0; window < 200; ++window) {
    pool.Open(8 * 4096, 4096);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    const BufferPool::Window closed = pool.Close();
    for (const CuptiBuffer& buffer : closed.full) {
      for (size_t i = 1; i < buffer.valid_bytes; ++i) {
        if (buffer.data[i] != buffer.data[0]) ++clashes;
      }
    }
    pool.Return(closed.full);
    if (window % 10 == 0) pool.Trim();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
  EXPECT_LE(pool.blocks(), 8);
}

}  // namespace
}  // namespace stepscope
