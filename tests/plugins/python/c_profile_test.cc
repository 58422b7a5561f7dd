// Uses a profile through the C interface, from its start until its handle is
// stale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "shim.h"
#include "stepscope_c.h"
#include "support/temp_folder.h"
#include "support/without_progress.h"

namespace stepscope::c_profile_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Get(uint64_t handle, int window, const char* what) {
  char* result = nullptr;
  if (stepscope_profile_report(handle, window, what, &result) < 0) {
    return std::string("error: ") + stepscope_last_error();
  }
  std::string text = result;
  stepscope_free(result);
  return text;
}

uint64_t Start(const std::string& options) {
  uint64_t handle = 0;
  EXPECT_EQ(stepscope_profile_start(options.c_str(), nullptr, &handle),
            STEPSCOPE_OK)
      << stepscope_last_error();
  return handle;
}

void TrainOneStep() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

constexpr char kTwoSteps[] =
    R"("schedule": {"wait": 1, "warmup": 1, "active": 2, "repeat": 1})";

class CProfileTest : public ::testing::Test {
 protected:
  TempFolder folder_;
};

TEST_F(CProfileTest, RecordsReportsAndIsForgotten) {
  const uint64_t handle =
      Start(std::string("{") + kTwoSteps + R"(, "spool_dir": ")" +
            folder_.path().string() + "\"}");
  EXPECT_THAT(Get(handle, -1, "plan"), HasSubstr("2-3 recorded"));
  EXPECT_THAT(Get(handle, -1, "json"), StartsWith("error: no window"));
  int flags[4];
  for (int& flag : flags) {
    TrainOneStep();
    flag = stepscope_profile_step(handle) & ~STEPSCOPE_STEP_WINDOW;
  }
  EXPECT_THAT(flags, ::testing::ElementsAre(
                         STEPSCOPE_STEP_RECORDING, STEPSCOPE_STEP_RECORDING,
                         STEPSCOPE_STEP_RECORDING, STEPSCOPE_STEP_DONE));
  EXPECT_EQ(stepscope_profile_finish(handle), STEPSCOPE_OK)
      << stepscope_last_error();
  EXPECT_EQ(stepscope_profile_windows(handle), 1);
  EXPECT_THAT(Get(handle, -1, "json"), HasSubstr("\"version\": 2"));
  EXPECT_THAT(Get(handle, 0, "text"), HasSubstr("step"));
  EXPECT_THAT(Get(handle, 1, "json"), StartsWith("error: window 1"));
  EXPECT_THAT(Get(handle, 0, "pdf"), HasSubstr("not 'pdf'"));
  const std::string trace = Get(handle, 0, "trace");
  EXPECT_TRUE(std::filesystem::exists(trace)) << trace;
  EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_OK);
  EXPECT_FALSE(std::filesystem::exists(trace));
  EXPECT_EQ(stepscope_profile_step(handle), STEPSCOPE_E_HANDLE);
  EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_E_HANDLE);
}

TEST_F(CProfileTest, StepsHaveTheNumbersOfTheLoop) {
  const uint64_t handle =
      Start(std::string("{") + kTwoSteps + R"(, "first_step": 5000})");
  EXPECT_THAT(Get(handle, -1, "plan"), HasSubstr("5002-5003 recorded"));
  for (int i = 0; i < 4; ++i) {
    TrainOneStep();
    stepscope_profile_step(handle);
  }
  EXPECT_EQ(stepscope_profile_finish(handle), STEPSCOPE_OK)
      << stepscope_last_error();
  EXPECT_THAT(Get(handle, -1, "json"), HasSubstr("\"step\": 5002"));
  EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_OK);
}

TEST_F(CProfileTest, TheTraceOfALogDirectoryIsItsOwnFile) {
  const uint64_t handle =
      Start(std::string("{") + kTwoSteps + R"(, "log_dir": ")" +
            folder_.path().string() + "\"}");
  for (int i = 0; i < 4; ++i) {
    TrainOneStep();
    stepscope_profile_step(handle);
  }
  EXPECT_EQ(stepscope_profile_finish(handle), STEPSCOPE_OK)
      << stepscope_last_error();
  const std::string trace = Get(handle, -1, "trace");
  EXPECT_THAT(trace, StartsWith(folder_.path().string()));
  EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_OK);
  EXPECT_TRUE(std::filesystem::exists(trace)) << trace;
}

// As torch.profiler allows: no schedule, and no explicit end.
TEST_F(CProfileTest, AWholeLoopIsOneWindow) {
  const uint64_t handle =
      Start(R"({"schedule": {"wait": 0, "warmup": 0, "active": 1000000000}})");
  EXPECT_THAT(Get(handle, -1, "plan"), HasSubstr("to the end of the loop"));
  for (int i = 0; i < 5; ++i) {
    TrainOneStep();
    EXPECT_EQ(stepscope_profile_step(handle), STEPSCOPE_STEP_RECORDING);
  }
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_OK)
      << stepscope_last_error();
  EXPECT_EQ(WithoutProgress(::testing::internal::GetCapturedStderr()), "");
}

// Exits with an error if something is wrong.
void EndByASignal(const std::string& options) {
  const uint64_t handle = Start(options);
  for (int i = 0; i < 3; ++i) {
    TrainOneStep();
    stepscope_profile_step(handle);
  }
  if (stepscope_profile_ending(handle) != 0) _exit(8);
  raise(SIGTERM);
  const int flags = stepscope_profile_step(handle);
  if ((flags & STEPSCOPE_STEP_ENDING) == 0) _exit(9);
  if (stepscope_profile_finish(handle) != STEPSCOPE_OK) _exit(10);
  if (stepscope_profile_ending(handle) != 1) _exit(11);
  if (stepscope_profile_windows(handle) != 1) _exit(12);
  if (Get(handle, 0, "text").empty()) _exit(13);
  stepscope_profile_close(handle);
  _exit(14);
}

TEST_F(CProfileTest, ASignalEndsTheProgramWhenTheProfileIsClosed) {
  // A fork could inherit a lock held by a thread of an earlier test.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string options =
      R"({"schedule": {"wait": 0, "warmup": 0, "active": 1000},
          "gpu": false, "signal_grace_ms": 3600000, "log_dir": ")" +
      folder_.At("log") + "\"}";
  EXPECT_EXIT(EndByASignal(options), ::testing::KilledBySignal(SIGTERM),
              "SIGTERM: the profile ends first");
}

TEST_F(CProfileTest, WrongOptionsAreErrors) {
  const struct {
    const char* options;
    const char* message;
  } kCases[] = {
      {"nonsense", "not a JSON object"},
      {R"({"log_dri": ""})", "unknown key 'log_dri'"},
      {R"({"schedule": {"waits": 1}})", "unknown key 'schedule.waits'"},
      {R"({"schedule": {"wait": "1"}})",
       "schedule.wait must be a whole number"},
      {R"({"schedule": {"active": 0}})", "active is 0"},
      {R"({"record_shapes": 1})", "record_shapes must be true or false"},
  };
  for (const auto& test : kCases) {
    uint64_t handle = 7;
    EXPECT_EQ(stepscope_profile_start(test.options, nullptr, &handle),
              STEPSCOPE_E_ARGUMENT);
    EXPECT_THAT(stepscope_last_error(), HasSubstr(test.message));
    EXPECT_EQ(handle, 0u);
  }
}

TEST_F(CProfileTest, AShimOfOtherSourcesIsRefused) {
  stepscope_shim shim = {};
  shim.abi = STEPSCOPE_SHIM_ABI;
  shim.id = "0.0.1-0123456789abcdef";
  uint64_t handle = 7;
  EXPECT_EQ(stepscope_profile_start("{}", &shim, &handle), STEPSCOPE_E_FAILED);
  EXPECT_THAT(stepscope_last_error(), HasSubstr("other sources"));
  shim.id = stepscope_shim_id();
  shim.abi = STEPSCOPE_SHIM_ABI + 1;
  EXPECT_EQ(stepscope_profile_start("{}", &shim, &handle), STEPSCOPE_E_FAILED);
}

TEST_F(CProfileTest, OneProfileRecordsAtATime) {
  const uint64_t first = Start("{}");
  uint64_t second = 7;
  EXPECT_EQ(stepscope_profile_start("{}", nullptr, &second),
            STEPSCOPE_E_FAILED);
  EXPECT_EQ(second, 0u);
  EXPECT_EQ(stepscope_profile_close(first), STEPSCOPE_E_FAILED);
  EXPECT_THAT(stepscope_last_error(), HasSubstr("nothing recorded"));
  EXPECT_EQ(stepscope_profile_close(first), STEPSCOPE_E_HANDLE);
}

TEST_F(CProfileTest, RangesEndInAnyOrderAndOnTheirThreadAlone) {
  const uint64_t handle =
      Start(R"({"schedule": {"wait": 0, "warmup": 0, "active": 1}})");
  ASSERT_NE(*stepscope_window(), 0u);
  uint64_t outer = 0;
  uint64_t inner = 0;
  ASSERT_EQ(stepscope_range_open(STEPSCOPE_RANGE_USER, "outer", "", &outer), 0);
  ASSERT_EQ(
      stepscope_range_open(STEPSCOPE_RANGE_PHASE, "forward", nullptr, &inner),
      0);
  EXPECT_NE(outer, inner);
  std::thread([&] {
    EXPECT_EQ(stepscope_range_close(outer), STEPSCOPE_E_HANDLE);
  }).join();
  EXPECT_EQ(stepscope_range_close(outer), STEPSCOPE_OK);
  EXPECT_EQ(stepscope_range_close(outer), STEPSCOPE_E_HANDLE);
  uint64_t open = 0;
  ASSERT_EQ(stepscope_range_open(STEPSCOPE_RANGE_USER, "open", "", &open), 0);
  EXPECT_EQ(stepscope_range_close(inner), STEPSCOPE_OK);
  TrainOneStep();
  EXPECT_EQ(stepscope_profile_step(handle) & STEPSCOPE_STEP_DONE,
            STEPSCOPE_STEP_DONE);
  EXPECT_EQ(*stepscope_window(), 0u);
  EXPECT_EQ(stepscope_range_close(open), STEPSCOPE_OK);  // its window is closed
  EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_OK);
}

uint64_t OpenOne() {
  uint64_t range = 0;
  EXPECT_EQ(stepscope_range_open(STEPSCOPE_RANGE_USER, "open", "", &range),
            STEPSCOPE_OK);
  return range;
}

std::vector<uint64_t> OpenMany(int count) {
  std::vector<uint64_t> ranges;
  for (int i = 0; i < count; ++i) ranges.push_back(OpenOne());
  return ranges;
}

// Returns how many of `ranges` the calling thread has open.
int64_t CloseAll(const std::vector<uint64_t>& ranges) {
  return std::ranges::count_if(ranges, [](uint64_t range) {
    return stepscope_range_close(range) == STEPSCOPE_OK;
  });
}

constexpr char kTwoWindows[] =
    R"({"schedule": {"wait": 0, "warmup": 0, "active": 1, "repeat": 2}})";

TEST_F(CProfileTest, AThreadMayHaveThousandsOfRangesOpen) {
  const uint64_t handle = Start(kTwoWindows);
  std::thread([&] {
    const std::vector<uint64_t> ranges = OpenMany(5'000);
    EXPECT_EQ(CloseAll(ranges), 5'000);
  }).join();
  stepscope_profile_step(handle);
  EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_OK)
      << stepscope_last_error();
}

// Ranges that a program forgets must not pile up over its windows.
TEST_F(CProfileTest, RangesThatAreLeftOpenAreForgottenInALaterWindow) {
  const uint64_t handle = Start(kTwoWindows);
  // On a thread of its own, which has no ranges of other tests.
  std::thread([&] {
    const uint64_t first = *stepscope_window();
    const std::vector<uint64_t> old = OpenMany(1'024);
    TrainOneStep();
    stepscope_profile_step(handle);
    ASSERT_NE(*stepscope_window(), 0u);
    ASSERT_NE(*stepscope_window(), first);
    const std::vector<uint64_t> open = OpenMany(2'000);
    EXPECT_EQ(CloseAll(old), 0);
    EXPECT_EQ(CloseAll(open), 2'000);
  }).join();
  TrainOneStep();
  stepscope_profile_step(handle);
  EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_OK)
      << stepscope_last_error();
}

}  // namespace
}  // namespace stepscope::c_profile_test
