// Tests that a trace that needs more memory than is available ends with a
// one-sentence error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/export.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "digest.h"
#include "memory_limit.h"
#include "support/random_trace.h"
#include "support/temp_folder.h"

namespace {

// Allocations of more bytes than this fail on any thread, until g_failures have
// failed.
std::atomic<std::size_t> g_most_bytes = SIZE_MAX;
std::atomic<int> g_failures = INT_MAX;

bool Fails(std::size_t bytes) {
  return bytes > g_most_bytes && g_failures.fetch_sub(1) > 0;
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = Fails(bytes) ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return Fails(bytes) ? nullptr : std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace stepscope::cli_memory_test {
namespace {

using testing::HasSubstr;

std::vector<std::string> WriteRanks(const TempFolder& folder) {
  std::vector<std::string> paths;
  for (int32_t rank = 0; rank < 6; ++rank) {
    paths.push_back(folder.At("rank" + std::to_string(rank) + ".json"));
    EXPECT_TRUE(WriteTrace(RandomTrace({.seed = 4, .rank = rank}), {},
                           Format::kChromeKineto, paths.back())
                    .ok());
  }
  return paths;
}

TEST(CliMemoryTest, WhatDoesNotFitBesideOthersIsReadAlone) {
  if (std::thread::hardware_concurrency() < 2)
    GTEST_SKIP() << "one core reads all traces alone";
  const TempFolder folder;
  const std::vector<std::string> paths = WriteRanks(folder);
  g_failures = 3;
  g_most_bytes = 100'000;
  const auto digests = DigestAll(paths);
  g_most_bytes = SIZE_MAX;
  EXPECT_LE(g_failures.exchange(INT_MAX), 0);
  ASSERT_EQ(digests.size(), paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    ASSERT_TRUE(digests[i].ok()) << digests[i].status();
    EXPECT_EQ(digests[i]->report.run.rank, static_cast<int32_t>(i));
  }
}

TEST(CliMemoryTest, OnReadersThreadsItIsTheErrorOfTheirTraces) {
  const TempFolder folder;
  const std::vector<std::string> paths = WriteRanks(folder);
  g_most_bytes = 100'000;  // less than a reader's block
  const auto digests = DigestAll(paths);
  g_most_bytes = SIZE_MAX;
  ASSERT_EQ(digests.size(), paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(digests[i].status()));
    EXPECT_THAT(std::string(digests[i].status().message()),
                testing::AllOf(HasSubstr(paths[i]), HasSubstr("out of memory"),
                               HasSubstr("Record fewer steps")));
  }
}

TEST(CliMemoryTest, ACommandEndsWithASentenceAndStatusOne) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunInMemory([]() -> int { throw std::bad_alloc(); }), 1);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("stepscope: the command did not finish: out of memory"));
  EXPECT_EQ(RunInMemory([] { return 4; }), 4);
}

TEST(CliMemoryTest, TheLimitIsWhatIsFreeAndWhatTheProcessHas) {
  constexpr int64_t kGib = int64_t{1} << 30;
  MemoryState state{.available = 6 * kGib,
                    .cgroup_left = -1,
                    .data_in_use = 1 * kGib,
                    .machine = 8 * kGib};
  EXPECT_EQ(MemoryLimitOf(state), 7 * kGib);
  state.cgroup_left = 2 * kGib;
  EXPECT_EQ(MemoryLimitOf(state), 3 * kGib);
  state.data_in_use = 20 * kGib * 1024;  // like a sanitizer's shadow memory
  EXPECT_EQ(MemoryLimitOf(state), -1);
  EXPECT_EQ(MemoryLimitOf(MemoryState()), -1);
}

TEST(CliMemoryTest, ReadsWhatLimitsAProcess) {
  const TempFolder folder;
  folder.Write("proc/meminfo",
               "MemTotal: 8000 kB\nMemFree: 1 kB\nMemAvailable: 3000 kB\n"
               "SwapTotal: 100 kB\nSwapFree: 50 kB\n");
  folder.Write("proc/self/status", "Name: x\nVmData:\t    200 kB\n");
  const std::string root = folder.path().string() + "/";
  MemoryState state = ReadMemoryState(root);
  EXPECT_EQ(state.available, 3050 * 1024);
  EXPECT_EQ(state.data_in_use, 200 * 1024);
  EXPECT_EQ(state.machine, 8100 * 1024);
  EXPECT_EQ(state.cgroup_left, -1);
  // The tightest limit of a group and its parents counts.
  folder.Write("proc/self/cgroup", "0::/job/task\n");
  folder.Write("sys/fs/cgroup/job/task/memory.max", "max\n");
  folder.Write("sys/fs/cgroup/job/task/memory.current", "100\n");
  folder.Write("sys/fs/cgroup/job/memory.max", "5000\n");
  folder.Write("sys/fs/cgroup/job/memory.current", "1000\n");
  EXPECT_EQ(ReadMemoryState(root).cgroup_left, 4000);
}

}  // namespace
}  // namespace stepscope::cli_memory_test
