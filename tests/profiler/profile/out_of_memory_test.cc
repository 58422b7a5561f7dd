// Makes stepscope's own threads run out of memory: the run is not profiled and
// continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/profile_parts.h>
#include <stepscope/range.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "io/file_sink.h"
#include "support/temp_folder.h"

namespace {

// While this is true, the thread that set it gets no memory.
thread_local bool t_no_memory = false;

// Number of allocations that the thread that set it may make before memory runs
// out (negative: no limit), and number of allocations since then.
thread_local int64_t t_own_left = -1;
thread_local int64_t t_own_taken = 0;

// True in the test's own thread. g_left: number of allocations that all other
// threads may make before memory runs out; negative: no limit.
thread_local bool t_is_tests = false;
std::atomic<int64_t> g_left = -1;
std::atomic<int64_t> g_taken = 0;

// True if this allocation must fail. Together with one allocation, the next
// ones fail as well, because a handler of the failure has no memory either.
bool Fails() {
  constexpr int64_t kFailures = 3;
  if (t_no_memory) return true;
  const bool is_own = t_own_left >= 0;
  if (t_is_tests && !is_own) return false;
  const int64_t taken = is_own ? t_own_taken++ : g_taken.fetch_add(1);
  const int64_t left = is_own ? t_own_left : g_left.load();
  return left >= 0 && taken >= left && taken < left + kFailures;
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = Fails() ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return Fails() ? nullptr : std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace stepscope::out_of_memory_test {
namespace {

// From now on, the other threads may allocate `times` times, then allocations
// fail, and then they succeed again; negative: no failure.
void Ration(int64_t times) {
  t_is_tests = true;
  g_taken = 0;
  g_left = times;
}

// Makes the analysis run out of memory, including what the thread does next.
ProfileParts Parts(const ProfileOptions& options) {
  ProfileParts parts = ProfileOutputs(options);
  parts.collectors = [](const ProfileOptions&) {
    return std::vector<std::unique_ptr<Collector>>();
  };
  parts.analyze = [](const Trace&, PageDetails*) -> Report {
    t_no_memory = true;
    throw std::bad_alloc();
  };
  return parts;
}

TEST(OutOfMemoryTest, OnTheBackgroundThreadItIsALineOnStderr) {
  testing::internal::CaptureStderr();
  {
    Profile profile({.schedule = {.wait = 0, .warmup = 0, .active = 1},
                     .print_report = false,
                     .time_all_steps = false},
                    &Parts);
    profile.Step();
    EXPECT_TRUE(absl::IsResourceExhausted(profile.Finish()));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("out of memory"));
}

ProfileParts WithoutAnalysis(const ProfileOptions& options) {
  ProfileParts parts = Parts(options);
  parts.analyze = [](const Trace&, PageDetails*) { return Report(); };
  return parts;
}

// Records two windows, with an event of a thread that ends and one of this
// thread.
absl::Status RecordTwoWindows() {
  Profile profile(
      {.schedule = {.wait = 0, .warmup = 1, .active = 1, .repeat = 2},
       .print_report = false},
      &WithoutAnalysis);
  for (int step = 0; step < 5; ++step) {
    const UserRange range("step");
    std::thread([] { const UserRange inner("thread"); }).join();
    profile.Step();
  }
  return profile.Finish();
}

// Lets one allocation after the other fail, together with the next ones.
TEST(OutOfMemoryTest, TheTrainingThreadGoesOnWhateverFails) {
  testing::internal::CaptureStderr();
  int64_t left = 0;
  for (bool failed = true; failed; left += left < 200 ? 1 : 7) {
    t_own_taken = 0;
    t_own_left = left;
    try {
      (void)RecordTwoWindows();
    } catch (const std::bad_alloc&) {
      // The failed allocation was the test's own: a thread, or the options.
    } catch (const std::system_error&) {
    }
    failed = t_own_taken > left;
    t_own_left = -1;
    // After the failure, nothing is left open that would prevent another
    // recording.
    const absl::Status status = RecordTwoWindows();
    EXPECT_TRUE(status.ok()) << status << " after allocation " << left;
    if (!status.ok()) break;
  }
  EXPECT_GT(left, 50);
  (void)testing::internal::GetCapturedStderr();
}

// The queues of blocks of a file also allocate.
TEST(OutOfMemoryTest, AFileIsWrittenByAThreadWithoutMemory) {
  const TempFolder folder;
  const std::string path = folder.At("file");
  auto sink = FileSink::Make(path, FileSink::Compression::kNone);
  ASSERT_TRUE(sink.ok());
  Ration(0);
  constexpr size_t kBlocks = 64;
  for (size_t i = 0; i < kBlocks; ++i) {
    (*sink)->block().append(FileSink::kBlockBytes, 'x');
    (*sink)->Flush();
    g_taken = 0;
  }
  EXPECT_TRUE((*sink)->Close().ok());
  Ration(-1);
  EXPECT_EQ(ReadBytes(path).size(), kBlocks * FileSink::kBlockBytes);
}

}  // namespace
}  // namespace stepscope::out_of_memory_test
