// Tests what a Profile says about all steps of a run. Its window records only a
// few of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/profile.h>
#include <stepscope/profile_parts.h>
#include <stepscope/range.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "fakes/fake_collector.h"
#include "support/temp_folder.h"

namespace stepscope::whole_run_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

class WholeRunTest : public ::testing::Test {
 protected:
  ProfileOptions Options() {
    ProfileOptions options;
    options.name = "test";
    options.print_report = false;
    options.collectors.emplace();
    options.collectors->push_back(std::make_unique<FakeCollector>(
        FakeCollector::Behaviour{}, std::make_shared<FakeCollector::Log>()));
    options.on_run_end = [this](const WholeRun& run) { run_ = run; };
    return options;
  }

  // Returns the first file in log_dir_ whose name ends with `end`.
  std::string FileAt(const std::string& end) {
    for (const auto& entry : fs::recursive_directory_iterator(log_dir_)) {
      if (entry.path().string().ends_with(end)) {
        return ReadBytes(entry.path().string());
      }
    }
    return "";
  }

  static void Steps(Profile& profile, int count) {
    for (int i = 0; i < count; ++i) {
      usleep(200);
      profile.Step();
    }
  }

  TempFolder folder_;
  const std::string log_dir_ = (folder_.path() / "runs").string();
  WholeRun run_;
};

// A program that saves in every 60th step and validates in every 100th, with
// the default schedule, which records steps 6 to 8. The test checks periods and
// shares against times measured around the sleeps, but no absolute durations.
TEST_F(WholeRunTest, StallsThatNoWindowSawAreNamed) {
  double saving = 0;
  double validating = 0;
  const auto sleep = [](int ms) {
    const Clock::time_point begin = Clock::now();
    usleep(static_cast<useconds_t>(ms * 1000));
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  {
    ProfileOptions options = Options();
    options.log_dir = log_dir_;
    Profile profile(std::move(options));
    for (int step = 0; step < 500; ++step) {
      sleep(2);
      if (step > 0 && step % 60 == 0) saving += sleep(40);
      if (step > 0 && step % 100 == 0) validating += sleep(80);
      profile.Step();
    }
    EXPECT_TRUE(profile.Finish().ok()) << profile.status();
  }
  ASSERT_GT(run_.steps, 200);
  const auto every = [&](double period) {
    for (const RunStall& stall : run_.stalls) {
      if (stall.rhythm == RunStall::Rhythm::kEvery &&
          stall.period_steps == period) {
        return stall.frac * run_.seconds;
      }
    }
    return 0.0;
  };
  EXPECT_NEAR(every(60), saving, 0.1 * saving);
  EXPECT_NEAR(every(100), validating, 0.1 * validating);
  EXPECT_THAT(FileAt("rank0.json"), AllOf(HasSubstr("\"whole_run\""),
                                          HasSubstr("\"period_steps\": 60")));
  EXPECT_THAT(FileAt("report.txt"), HasSubstr("every 60th step"));
}

// Uses no collector, only the session's own ranges. It is a function because
// Profile takes a function pointer.
ProfileParts RangesOnly(const ProfileOptions& options) {
  ProfileParts parts = ProfileOutputs(options);
  parts.collectors = [](const ProfileOptions&) {
    return std::vector<std::unique_ptr<Collector>>();
  };
  return parts;
}

// The schedule's window is over before the second stall. Once the rhythm is
// known, the next stall is recorded. The loop is resumed, so that step numbers
// differ from step counts.
TEST_F(WholeRunTest, TheNextOfARecurringStallIsRecordedToKnowItsCause) {
  ProfileOptions options = Options();
  options.collectors.reset();
  options.log_dir = log_dir_;
  options.first_step = 1000;
  {
    Profile profile(std::move(options), &RangesOnly);
    for (int step = 0; step < 600; ++step) {
      usleep(5'000);
      if (step % 40 == 39) {
        const UserRange range("save checkpoint");
        usleep(60'000);
      }
      profile.Step();
    }
    EXPECT_TRUE(profile.Finish().ok()) << profile.status();
  }
  const auto saving =
      std::ranges::find(run_.stalls, 40.0, &RunStall::period_steps);
  ASSERT_NE(saving, run_.stalls.end());
  EXPECT_EQ(saving->rhythm, RunStall::Rhythm::kEvery);
  EXPECT_THAT(saving->cause, HasSubstr("\"save checkpoint\" takes 6"));
  EXPECT_EQ(saving->cause_step % 40, 39);
  EXPECT_GT(saving->cause_step, 1000);
  EXPECT_THAT(FileAt("rank0.json"), HasSubstr("save checkpoint"));
  EXPECT_EQ(FileAt("c1/report.txt"), "");
}

TEST_F(WholeRunTest, IsPrintedAtTheEndOfTheScope) {
  ProfileOptions options = Options();
  options.print_report = true;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    Profile profile(std::move(options));
    Steps(profile,
          4000);  // steps during the analysis are left out
  }
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("\nwhole run: "));
}

TEST_F(WholeRunTest, CanBeSwitchedOff) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  options.time_all_steps = false;
  options.write_step_times = true;
  bool called = false;
  options.on_run_end = [&](const WholeRun&) { called = true; };
  {
    Profile profile(std::move(options));
    Steps(profile, 100);
  }
  EXPECT_FALSE(called);
  EXPECT_THAT(FileAt("rank0.json"), Not(HasSubstr("whole_run")));
  EXPECT_EQ(FileAt(".jsonl"), "");
}

TEST_F(WholeRunTest, EachStepIsALineForScripts) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  options.write_step_times = true;
  {
    Profile profile(std::move(options));
    Steps(profile, 50);
    EXPECT_TRUE(profile.Finish().ok()) << profile.status();
  }
  std::vector<std::string> lines;
  std::istringstream text(FileAt("steps_rank0.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_THAT(lines, SizeIs(50));
  EXPECT_THAT(lines[0], HasSubstr("{\"step\": 0, \"end_ns\": "));
  EXPECT_THAT(lines[1], HasSubstr("\"recorded\": false}"));
  EXPECT_THAT(lines[7], HasSubstr("\"recorded\": true}"));
  EXPECT_THAT(lines[49], HasSubstr("{\"step\": 49, "));
}

TEST_F(WholeRunTest, ALoopThatIsProfiledFromItsMiddleOnKeepsItsNumbers) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  options.write_step_times = true;
  options.print_report = true;
  options.first_step = 1000;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    Profile profile(std::move(options));
    Steps(profile, 50);
  }
  testing::internal::GetCapturedStdout();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("1006-1008 recorded"));
  EXPECT_THAT(FileAt("rank0.json"), AllOf(HasSubstr("\"step\": 1006"),
                                          Not(HasSubstr("\"step\": 6,"))));
  EXPECT_THAT(
      FileAt("steps_rank0.jsonl"),
      AllOf(StartsWith("{\"step\": 1000, "), HasSubstr("\n{\"step\": 1049, ")));
}

// The background thread writes lines while the loop runs, so that a script can
// follow.
TEST_F(WholeRunTest, LinesAreWrittenWhileTheLoopRuns) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  options.write_step_times = true;
  Profile profile(std::move(options));
  Steps(profile, 10'000);
  for (int i = 0; i < 200 && FileAt("steps_rank0.jsonl").empty(); ++i) {
    usleep(20'000);
    profile.Step();
  }
  EXPECT_NE(FileAt("steps_rank0.jsonl"), "");
}

TEST_F(WholeRunTest, AStatusLineComesAsOftenAsAskedFor) {
  ProfileOptions options = Options();
  options.status_every = std::chrono::milliseconds(1000);
  testing::internal::CaptureStderr();
  {
    Profile profile(std::move(options));
    for (int i = 0; i < 130; ++i) {
      usleep(10'000);
      profile.Step();
    }
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(" steps: usually "));
}

TEST_F(WholeRunTest, AnExceptionAtTheEndIsSaidAsWhatItIs) {
  ProfileOptions options = Options();
  options.on_run_end = [](const WholeRun&) { throw 3; };
  testing::internal::CaptureStderr();
  {
    Profile profile(std::move(options));
    Steps(profile, 20);
    EXPECT_TRUE(absl::IsInternal(profile.Finish()));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("on_run_end threw an exception: unknown exception"));
}

}  // namespace
}  // namespace stepscope::whole_run_test
