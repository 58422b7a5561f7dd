// Memory runs out on stepscope's own thread: the run is not profiled, and goes
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/profile_parts.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace {

// While it is true, the thread that set it gets no memory.
thread_local bool t_no_memory = false;

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = t_no_memory ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace stepscope {
namespace {

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

}  // namespace
}  // namespace stepscope
