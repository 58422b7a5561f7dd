#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stepscope/analysis.h>
#include <stepscope/logdir.h>
#include <stepscope/profile.h>
#include <stepscope/range.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "fakes/fake_collector.h"
#include "support/temp_folder.h"
#include "support/without_progress.h"

namespace stepscope::profile_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// The parts of a window that a test keeps after the Trace is gone.
struct Seen {
  int64_t cycle = -1;
  std::vector<int64_t> steps;
  std::vector<std::string> ranges;
  RunInfo run;
};

class ProfileTest : public ::testing::Test {
 protected:
  // Returns options with a fake collector, short cycles and no printing.
  ProfileOptions Options() {
    ProfileOptions options;
    options.name = "test";
    options.schedule = {.wait = 1, .warmup = 1, .active = 2};
    options.print_report = false;
    options.collectors.emplace();
    options.collectors->push_back(std::make_unique<FakeCollector>(
        FakeCollector::Behaviour{}, collector_));
    options.on_report = [this](const Trace& trace, const Report&) {
      Seen seen;
      seen.cycle = trace.run().cycle;
      seen.run = trace.run();
      for (const Step& step : trace.steps()) seen.steps.push_back(step.number);
      for (const Range& range : trace.ranges()) {
        seen.ranges.emplace_back(trace.name(range.name));
      }
      seen_.push_back(std::move(seen));
    };
    return options;
  }

  static void Run(Profile& profile, int steps) {
    for (int i = 0; i < steps; ++i) {
      {
        const UserRange range("work");
        usleep(200);
      }
      profile.Step();
    }
  }

  // Returns the files in `folder` as relative paths.
  static std::set<std::string> Files(const fs::path& folder) {
    std::set<std::string> files;
    if (!fs::exists(folder)) return files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) {
        files.insert(fs::relative(entry.path(), folder).string());
      }
    }
    return files;
  }

  static std::string StderrOf(const std::function<void()>& call) {
    testing::internal::CaptureStderr();
    call();
    return WithoutProgress(testing::internal::GetCapturedStderr());
  }

  TempFolder folder_;
  const std::string log_dir_ = (folder_.path() / "runs").string();
  std::shared_ptr<FakeCollector::Log> collector_ =
      std::make_shared<FakeCollector::Log>();
  std::vector<Seen> seen_;
};

TEST_F(ProfileTest, AWindowReachesTheReportAndTheLoopGoesOn) {
  {
    Profile profile(Options());
    Run(profile, 10);
    EXPECT_TRUE(profile.Finish().ok());
  }
  ASSERT_THAT(seen_, SizeIs(1));
  EXPECT_THAT(seen_[0].steps, ElementsAre(2, 3));
  EXPECT_THAT(seen_[0].ranges, ElementsAre("work", "work"));
  EXPECT_EQ(seen_[0].run.name, "test");
  EXPECT_THAT(seen_[0].run.producer, HasSubstr("stepscope "));
  EXPECT_EQ(seen_[0].run.language, "c++");
  EXPECT_EQ(seen_[0].run.world_size, 1);
  EXPECT_EQ(seen_[0].run.local_ranks, 1);
}

TEST_F(ProfileTest, WithoutALogDirectoryItOnlyPrints) {
  ProfileOptions options = Options();
  options.print_report = true;
  testing::internal::CaptureStdout();
  const std::string said = StderrOf([&] {
    Profile profile(std::move(options));
    Run(profile, 4);
  });
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_THAT(printed, AllOf(HasSubstr("stepscope"), HasSubstr("test")));
  EXPECT_THAT(printed, Not(HasSubstr("\x1b[")));  // not a terminal
  EXPECT_EQ(said,
            "stepscope: \"test\": step 0 wait (timed, nothing recorded), 1 "
            "warm-up, 2-3 recorded; then off\n");
}

TEST_F(ProfileTest, WritesTheFilesOfTheLogDirectoryAndNothingElse) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  {
    Profile profile(std::move(options));
    Run(profile, 4);
    EXPECT_TRUE(profile.Finish().ok()) << profile.status();
  }
  ASSERT_THAT(seen_, SizeIs(1));
  const LogPaths paths =
      PathsFor(log_dir_, seen_[0].run.run_id, seen_[0].run.host, 0, 0);
  std::set<std::string> expected;
  for (const std::string& path :
       {paths.chrome_tb, paths.xspace, paths.chrome_kineto, paths.advice,
        paths.page, paths.report}) {
    expected.insert(fs::relative(path, log_dir_).string());
  }
  EXPECT_EQ(Files(log_dir_), expected);
  EXPECT_THAT(ReadBytes(paths.advice), HasSubstr("\"version\""));
  EXPECT_THAT(ReadBytes(paths.report), Not(HasSubstr("\x1b[")));
}

TEST_F(ProfileTest, AFormatThatWasSwitchedOffIsNotWritten) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  options.write_chrome_tb = false;
  options.write_xspace = false;
  options.write_chrome_kineto = false;
  {
    Profile profile(std::move(options));
    Run(profile, 4);
  }
  EXPECT_THAT(Files(log_dir_), SizeIs(3));  // advice, page and report
}

TEST_F(ProfileTest, EachCycleHasItsOwnFiles) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  options.schedule.repeat = 2;
  {
    Profile profile(std::move(options));
    Run(profile, 8);
    EXPECT_TRUE(profile.Finish().ok()) << profile.status();
  }
  ASSERT_THAT(seen_, SizeIs(2));
  for (int cycle : {0, 1}) {
    EXPECT_EQ(seen_[cycle].cycle, cycle);
    EXPECT_TRUE(fs::exists(
        PathsFor(log_dir_, seen_[0].run.run_id, seen_[0].run.host, 0, cycle)
            .chrome_kineto));
  }
}

TEST_F(ProfileTest, TwoRunsInOneSecondKeepTheirFilesApart) {
  std::set<std::string> first;
  for (int i = 0; i < 2; ++i) {
    ProfileOptions options = Options();
    options.log_dir = log_dir_;
    Profile profile(std::move(options));
    Run(profile, 4);
    EXPECT_TRUE(profile.Finish().ok());
    if (i == 0) first = Files(log_dir_);
  }
  EXPECT_THAT(Files(log_dir_), SizeIs(2 * first.size()));
  EXPECT_NE(seen_[0].run.run_id, seen_[1].run.run_id);
}

TEST_F(ProfileTest, AScheduleThatRecordsNothingIsSaidAndTheLoopRuns) {
  ProfileOptions options = Options();
  options.schedule.active = 0;
  const std::string said = StderrOf([&] {
    Profile profile(std::move(options));
    Run(profile, 10);
    EXPECT_TRUE(absl::IsInvalidArgument(profile.status()));
  });
  EXPECT_THAT(said, AllOf(HasSubstr("active is 0"),
                          HasSubstr("training goes on unprofiled")));
  EXPECT_THAT(seen_, IsEmpty());
  EXPECT_THAT(collector_->calls, IsEmpty());
}

TEST_F(ProfileTest, ASecondProfileStaysOffAndNamesTheFirst) {
  Profile first(Options());
  auto other = std::make_shared<FakeCollector::Log>();
  ProfileOptions options;
  options.name = "other";
  options.log_dir = log_dir_;
  options.collectors.emplace();
  options.collectors->push_back(
      std::make_unique<FakeCollector>(FakeCollector::Behaviour{}, other));
  const std::string said = StderrOf([&] {
    Profile second(std::move(options));
    Run(second, 20);
    EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
    EXPECT_FALSE(second.is_active());
  });
  EXPECT_THAT(said, HasSubstr("\"test\" is still being profiled"));
  EXPECT_THAT(other->calls, IsEmpty());
  EXPECT_FALSE(fs::exists(log_dir_));
  Run(first, 4);
  EXPECT_TRUE(first.Finish().ok());
  EXPECT_THAT(seen_, SizeIs(1));
}

TEST_F(ProfileTest, ALoopThatEndsInWarmUpIsToldWhatItMissed) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  const std::string said = StderrOf([&] {
    Profile profile(std::move(options));
    Run(profile, 2);
    EXPECT_TRUE(absl::IsFailedPrecondition(profile.Finish()));
  });
  EXPECT_THAT(said, HasSubstr("loop ended in warm-up after 2 steps, nothing "
                              "recorded: needs 4 steps"));
  EXPECT_FALSE(fs::exists(log_dir_));
}

TEST_F(ProfileTest, ALoopThatEndsInTheWindowKeepsItsSteps) {
  const std::string said = StderrOf([&] {
    Profile profile(Options());
    Run(profile, 3);
    EXPECT_TRUE(profile.Finish().ok());
  });
  EXPECT_THAT(said, HasSubstr("1 of 2 steps recorded"));
  ASSERT_THAT(seen_, SizeIs(1));
  EXPECT_THAT(seen_[0].steps, ElementsAre(2));
}

TEST_F(ProfileTest, StepsPastTheEndAreFreeAndSilent) {
  Profile profile(Options());
  Run(profile, 4);
  const auto calls = collector_->calls;
  const std::string said = StderrOf([&] {
    for (int i = 0; i < 100'000; ++i) profile.Step();
  });
  EXPECT_EQ(said, "");
  EXPECT_EQ(collector_->calls, calls);
  EXPECT_TRUE(profile.Finish().ok());
  profile.Step();
  EXPECT_TRUE(profile.Finish().ok());
  EXPECT_THAT(seen_, SizeIs(1));
}

TEST_F(ProfileTest, AnExceptionInTheLoopKeepsThePartialWindow) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  const std::string said = StderrOf([&] {
    try {
      Profile profile(std::move(options));
      Run(profile, 3);
      const UserRange range("broken");
      throw std::runtime_error("loss is NaN");
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "loss is NaN");
    }
  });
  EXPECT_THAT(said, HasSubstr("an exception left the loop in step 3"));
  EXPECT_THAT(said, Not(HasSubstr("Step()")));
  ASSERT_THAT(seen_, SizeIs(1));
  EXPECT_THAT(seen_[0].steps, ElementsAre(2));
  EXPECT_THAT(Files(log_dir_), SizeIs(6));
}

TEST_F(ProfileTest, AnExceptionInTheFirstRecordedStepKeepsWhatLedToIt) {
  const std::string said = StderrOf([&] {
    try {
      Profile profile(Options());
      Run(profile, 2);
      const UserRange range("broken");
      usleep(200);
      throw std::runtime_error("loss is NaN");
    } catch (const std::runtime_error&) {
    }
  });
  EXPECT_THAT(said, HasSubstr("an exception left the loop in step 2"));
  ASSERT_THAT(seen_, SizeIs(1));
  EXPECT_THAT(seen_[0].steps, IsEmpty());
}

TEST_F(ProfileTest, AProfileMadeWhileAnExceptionIsInFlightEndsAsUsual) {
  struct Cleanup {
    std::function<void()> call;
    ~Cleanup() { call(); }
  };
  const std::string said = StderrOf([&] {
    try {
      const Cleanup cleanup{[&] {
        Profile profile(Options());
        Run(profile, 3);
      }};
      throw std::runtime_error("elsewhere");
    } catch (const std::runtime_error&) {
    }
  });
  EXPECT_THAT(said, Not(HasSubstr("exception")));
  EXPECT_THAT(seen_, SizeIs(1));
}

TEST_F(ProfileTest,
       AnUnwritableLogDirectoryIsSaidAtOnceAndTheReportStillComes) {
  ProfileOptions options = Options();
  options.log_dir = folder_.Write("file", "in the way") + "/runs";
  std::string at_start;
  const std::string said = StderrOf([&] {
    Profile profile(std::move(options));
    EXPECT_FALSE(profile.status().ok());
    Run(profile, 4);
  });
  EXPECT_THAT(said, HasSubstr("cannot write to log_dir"));
  EXPECT_THAT(said, HasSubstr("choose another log_dir"));
  EXPECT_THAT(seen_, SizeIs(1));
}

// Limits the file size so that every file is too large, as on a full disk. The
// limit affects the whole process, so this runs in a child. The child is
// started afresh, because in a forked child a lock held by an earlier profile's
// thread would never be released.
TEST_F(ProfileTest, AFullDiskIsOneMessageAndLeavesNothingBehind) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    const rlimit none{1, RLIM_INFINITY};
    ProfileOptions options = Options();
    options.log_dir = log_dir_;
    Profile profile(std::move(options));
    // In a death test, stderr is a file, so the limit affects it, too.
    // background_test checks that files are written with the signal blocked.
    std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    Run(profile, 4);
    const absl::Status status = profile.Finish();
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &all);
    // The messages went to a file, which had its limit, too.
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    _exit(absl::IsResourceExhausted(status) && Files(log_dir_).empty() ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0),
              "6 of 6 files were not written");
}

// A real file system with space for some of the files: these are complete, and
// the other files are named. Runs in a child with its own mount namespace.
TEST_F(ProfileTest, AFileSystemThatFillsUpKeepsWhatFitted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int kNoNamespace = 77;
  const auto run = [&] {
    const bool root = geteuid() == 0;
    if (unshare(root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      _exit(kNoNamespace);
    }
    // Hides the mount from the parent.
    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    fs::create_directories(log_dir_);
    if (mount("tmpfs", log_dir_.c_str(), "tmpfs", 0, "size=16k") != 0) {
      _exit(kNoNamespace);
    }
    ProfileOptions options = Options();
    options.log_dir = log_dir_;
    Profile profile(std::move(options));
    Run(profile, 4);
    const absl::Status status = profile.Finish();
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    bool whole = !Files(log_dir_).empty();
    for (const std::string& name : Files(log_dir_)) {
      whole &= fs::file_size(fs::path(log_dir_) / name) > 0 &&
               name.find(".tmp") == std::string::npos;
    }
    _exit(absl::IsResourceExhausted(status) && whole ? 0 : 1);
  };
  int exited_with = -1;
  const auto remember = [&](int status) {
    exited_with = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return exited_with == 0 || exited_with == kNoNamespace;
  };
  EXPECT_EXIT(run(), remember, "");
  if (exited_with == kNoNamespace) {
    GTEST_SKIP() << "this process may not mount a file system";
  }
}

TEST_F(ProfileTest, ACollectorThatCannotStartIsSaidAndTheRestIsRecorded) {
  ProfileOptions options = Options();
  options.collectors->push_back(std::make_unique<FakeCollector>(
      FakeCollector::Behaviour{
          .name = "gpu",
          .fail_starts = {1},
          .error = absl::FailedPreconditionError("gpu: taken by nsys")},
      std::make_shared<FakeCollector::Log>()));
  const std::string said = StderrOf([&] {
    // Without a step before it the window opens in the constructor.
    options.schedule = {.wait = 0, .warmup = 0, .active = 3};
    Profile profile(std::move(options));
    EXPECT_TRUE(absl::IsFailedPrecondition(profile.status()));
    EXPECT_TRUE(profile.is_active());
    Run(profile, 4);
    EXPECT_TRUE(absl::IsFailedPrecondition(profile.Finish()));
    EXPECT_FALSE(profile.is_active());
  });
  EXPECT_EQ(said, "stepscope: gpu: taken by nsys\n");
  EXPECT_THAT(seen_, SizeIs(1));
}

TEST_F(ProfileTest, AnExceptionOfACollectorStopsTheProfileNotTheLoop) {
  class Thrower : public Collector {
   public:
    std::string_view name() const override { return "thrower"; }
    absl::Status Start() override { return absl::OkStatus(); }
    void OnStep(int64_t, int64_t) override { throw std::bad_alloc(); }
    absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
      return absl::InternalError("stop");
    }
  };
  ProfileOptions options = Options();
  options.collectors->push_back(std::make_unique<Thrower>());
  const std::string said = StderrOf([&] {
    Profile profile(std::move(options));
    Run(profile, 10);
    EXPECT_FALSE(profile.Finish().ok());
  });
  EXPECT_THAT(said, HasSubstr("profiling stopped: std::bad_alloc"));
}

TEST_F(ProfileTest, AnExceptionInTheReportIsAnErrorNotACrash) {
  ProfileOptions options = Options();
  options.on_report = [](const Trace&, const Report&) {
    throw std::runtime_error("mine");
  };
  const std::string said = StderrOf([&] {
    Profile profile(std::move(options));
    Run(profile, 4);
    EXPECT_TRUE(absl::IsInternal(profile.Finish()));
  });
  EXPECT_THAT(said, HasSubstr("on_report threw an exception: mine"));
  EXPECT_THAT(said, Not(HasSubstr("analysed")));
}

TEST_F(ProfileTest, AnExceptionInTheReportLosesNoFile) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  options.on_report = [](const Trace&, const Report&) {
    throw std::runtime_error("mine");
  };
  StderrOf([&] {
    Profile profile(std::move(options));
    Run(profile, 4);
  });
  EXPECT_THAT(Files(log_dir_), SizeIs(6));
}

TEST_F(ProfileTest, TheEndWaitsNoLongerThanItMay) {
  auto release = std::make_shared<std::promise<void>>();
  auto released =
      std::make_shared<std::shared_future<void>>(release->get_future().share());
  ProfileOptions options = Options();
  options.stop_timeout = std::chrono::milliseconds(30);
  options.on_report = [released](const Trace&, const Report&) {
    released->wait();
  };
  const std::string said = StderrOf([&] {
    Profile profile(std::move(options));
    Run(profile, 4);
    EXPECT_TRUE(absl::IsDeadlineExceeded(profile.Finish()));
    release->set_value();
  });
  EXPECT_THAT(said, HasSubstr("raise stop_timeout"));
}

TEST_F(ProfileTest, AChildForkedInTheWindowTouchesNothing) {
  ProfileOptions options = Options();
  options.log_dir = log_dir_;
  auto profile = std::make_unique<Profile>(std::move(options));
  Run(*profile, 3);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto before = Files(log_dir_);
    Run(*profile, 5);
    const bool quiet = profile->Finish().ok() && seen_.empty();
    profile.reset();
    _exit(quiet && Files(log_dir_) == before ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Run(*profile, 1);
  EXPECT_TRUE(profile->Finish().ok()) << profile->status();
  ASSERT_THAT(seen_, SizeIs(1));
  EXPECT_THAT(seen_[0].steps, ElementsAre(2, 3));
  EXPECT_THAT(Files(log_dir_), SizeIs(6));
}

TEST_F(ProfileTest, OptionsAreWrittenInPlace) {
  // The form used in the README must compile.
  Profile profile({.log_dir = log_dir_, .name = "resnet18"});
  EXPECT_TRUE(profile.status().ok()) << profile.status();
}

}  // namespace
}  // namespace stepscope::profile_test
