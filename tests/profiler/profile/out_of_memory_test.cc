// Memory runs out on stepscope's own thread: the run is not profiled, and goes
// on.
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

// While it is true, the thread that set it gets no memory.
thread_local bool t_no_memory = false;

// If it is not negative: how often the thread that set it gets memory before it
// runs out; and how often it has asked since.
thread_local int64_t t_own_left = -1;
thread_local int64_t t_own_taken = 0;

// How often the threads that are not the test's have asked for memory, and how
// often they get it before it runs out; negative: always.
thread_local bool t_is_tests = false;
std::atomic<int64_t> g_left = -1;
std::atomic<int64_t> g_taken = 0;

// True if this allocation is to fail: one, and all right behind it, as a
// handler of the failure has no memory either.
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

// From here on the other threads of the process get memory `times` times, then
// not, then again; always if it is negative.
void Ration(int64_t times) {
  t_is_tests = true;
  g_taken = 0;
  g_left = times;
}

// Analysis runs out of memory, and what that thread does next has none either.
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

// Two windows, with an event of a thread that ends and one of this thread.
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

// One allocation after the other fails, and those right behind it.
TEST(OutOfMemoryTest, TheTrainingThreadGoesOnWhateverFails) {
  testing::internal::CaptureStderr();
  int64_t left = 0;
  for (bool failed = true; failed; left += left < 200 ? 1 : 7) {
    t_own_taken = 0;
    t_own_left = left;
    try {
      (void)RecordTwoWindows();
    } catch (const std::bad_alloc&) {
      // That was the test's own allocation: a thread, or the options.
    } catch (const std::system_error&) {
    }
    failed = t_own_taken > left;
    t_own_left = -1;
    // What failed leaves nothing open that would keep another from recording.
    const absl::Status status = RecordTwoWindows();
    EXPECT_TRUE(status.ok()) << status << " after allocation " << left;
    if (!status.ok()) break;
  }
  EXPECT_GT(left, 50);
  (void)testing::internal::GetCapturedStderr();
}

// Its queues of blocks allocate, too.
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
