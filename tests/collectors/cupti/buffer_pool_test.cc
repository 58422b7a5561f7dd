#include "buffer_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace stepscope::buffer_pool_test {
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
  pool.Return(window);
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
  EXPECT_EQ(pool.blocks(), 1);  // CUPTI still holds it
  pool.Open(2 * 4096, 4096);
  uint8_t* other = pool.Request(&bytes);
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other, kept);
  std::memset(kept, 1, bytes);  // CUPTI may still write
  pool.Complete(kept, 10);
  pool.Complete(other, 20);
  const BufferPool::Window window = pool.Close();
  ASSERT_EQ(window.full.size(), 2u);
  EXPECT_EQ(window.full[0].data, kept);
  EXPECT_EQ(window.still_out, 0);
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

BufferPool::Overflow Discarding() {
  return {.discard = true, .count = [](const CuptiBuffer& buffer) {
            return static_cast<int64_t>(buffer.valid_bytes / 100);
          }};
}

// CUPTI before CUDA 12.9 crashes if it gets null.
TEST(BufferPoolTest, WhereNullCrashesTheOverflowIsDiscardedAndCounted) {
  BufferPool pool;
  pool.Open(4096, 4096, Discarding());
  size_t bytes = 0;
  uint8_t* kept = pool.Request(&bytes);
  size_t first_bytes = 0;
  uint8_t* first = pool.Request(&first_bytes);
  uint8_t* second = pool.Request(&bytes);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, kept);
  EXPECT_NE(second, first);  // CUPTI may link a block's records
  EXPECT_GE(first_bytes, 4096u);
  std::memset(first, 1, first_bytes);
  pool.Complete(first, 1000);
  EXPECT_EQ(pool.Request(&bytes), first);  // and is used again
  pool.Complete(second, 500);
  pool.Complete(kept, 64);
  const BufferPool::Window window = pool.Close();
  ASSERT_EQ(window.full.size(), 1u);
  EXPECT_EQ(window.full[0].data, kept);
  EXPECT_EQ(window.refused, 3);
  EXPECT_EQ(window.discarded, 15);
  EXPECT_EQ(window.still_out, 0);  // no separate loss
}

TEST(BufferPoolTest, WhereNullCrashesThereIsABlockBetweenWindowsToo) {
  BufferPool pool;
  pool.Open(4096, 4096, Discarding());
  (void)pool.Close();
  size_t bytes = 0;
  uint8_t* late = pool.Request(&bytes);
  ASSERT_NE(late, nullptr);
  std::memset(late, 1, bytes);
  pool.Complete(late, 1000);
  pool.Open(4096, 4096);
  EXPECT_TRUE(pool.Close().full.empty());
}

TEST(BufferPoolTest, ManyRequestsAtOnceStillGetMemory) {
  BufferPool pool;
  pool.Open(4096, 4096, Discarding());
  for (int i = 0; i < 1000; ++i) {
    size_t bytes = 0;
    uint8_t* data = pool.Request(&bytes);
    ASSERT_NE(data, nullptr) << i;
    std::memset(data, 1, bytes);
  }
  EXPECT_LE(pool.blocks(), 66);
}

TEST(BufferPoolTest, ItSaysWhenItRunsOut) {
  BufferPool pool;
  pool.Open(16 * 4096, 4096, Discarding());
  size_t bytes = 0;
  for (int i = 0; i < 14; ++i) (void)pool.Request(&bytes);
  EXPECT_FALSE(pool.is_running_out());
  (void)pool.Request(&bytes);  // takes the last eighth
  EXPECT_TRUE(pool.is_running_out());

  BufferPool patient;  // for a CUPTI that accepts null
  patient.Open(2 * 4096, 4096);
  (void)patient.Request(&bytes);
  (void)patient.Request(&bytes);
  EXPECT_FALSE(patient.is_running_out());
  EXPECT_EQ(patient.Request(&bytes), nullptr);
  EXPECT_TRUE(patient.is_running_out());
}

// Returns the share of a block's pages that are resident.
double Resident(const uint8_t* data, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data) / page * page;
  const size_t pages =
      (reinterpret_cast<uintptr_t>(data) + bytes - begin + page - 1) / page;
  std::vector<unsigned char> resident(pages);
  EXPECT_EQ(
      mincore(reinterpret_cast<void*>(begin), pages * page, resident.data()),
      0);
  return static_cast<double>(std::count_if(resident.begin(), resident.end(),
                                           [](int r) { return r & 1; })) /
         static_cast<double>(pages);
}

TEST(BufferPoolTest, APreparedBlockCostsNoPageFault) {
  constexpr int64_t kBlock = int64_t{1} << 20;
  BufferPool pool;
  pool.Open(4 * kBlock, kBlock);
  pool.Prepare(3);
  EXPECT_EQ(pool.blocks(), 3);
  size_t bytes = 0;
  for (int i = 0; i < 3; ++i) {
    const uint8_t* data = pool.Request(&bytes);
    EXPECT_EQ(Resident(data, bytes), 1) << i;
  }
  pool.Prepare(3);  // as many as the limit allows
  EXPECT_EQ(pool.blocks(), 4);
  (void)pool.Close();
  pool.Prepare(9);
  EXPECT_EQ(pool.blocks(), 4);
}

TEST(BufferPoolTest, WhatComesLateGoesToItsOwnWindow) {
  BufferPool pool;
  pool.Open(2 * 4096, 4096);
  size_t bytes = 0;
  uint8_t* late = pool.Request(&bytes);
  BufferPool::Window window = pool.Close();
  EXPECT_EQ(window.still_out, 1);
  EXPECT_FALSE(pool.TakeLate(&window));
  pool.Complete(late, 10);
  EXPECT_TRUE(pool.TakeLate(&window));
  ASSERT_EQ(window.full.size(), 1u);
  EXPECT_EQ(window.full[0].data, late);
  EXPECT_EQ(window.still_out, 0);
  pool.Open(4096, 4096);
  EXPECT_EQ(pool.Request(&bytes), nullptr);  // still being decoded
  pool.Return(window);
  EXPECT_EQ(pool.Request(&bytes), late);
}

TEST(BufferPoolTest, WhatComesAfterAWindowIsDecodedIsDropped) {
  BufferPool pool;
  pool.Open(4096, 4096);
  size_t bytes = 0;
  uint8_t* late = pool.Request(&bytes);
  const BufferPool::Window window = pool.Close();
  pool.Return(window);
  pool.Complete(late, 10);
  pool.Open(4096, 4096);
  EXPECT_EQ(pool.Request(&bytes), late);
  EXPECT_TRUE(pool.Close().full.empty());
}

// Threads request, write and complete blocks while windows open and close. No
// block may have two owners. Under the thread sanitizer, this is the race test.
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
    pool.Return(closed);
    if (window % 10 == 0) pool.Trim();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
  EXPECT_LE(pool.blocks(), 8);
}

}  // namespace
}  // namespace stepscope::buffer_pool_test
