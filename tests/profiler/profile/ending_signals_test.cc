// Sends SIGINT and SIGTERM while a window is recorded. Each case runs in its
// own process, because the signal ends it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/logdir.h>
#include <stepscope/profile.h>
#include <stepscope/profile_parts.h>
#include <stepscope/read.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "support/temp_folder.h"

namespace stepscope::ending_signals_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

ProfileParts WithoutCollectors(const ProfileOptions& options) {
  ProfileParts parts = ProfileOutputs(options);
  parts.collectors = [](const ProfileOptions&) {
    return std::vector<std::unique_ptr<Collector>>();
  };
  return parts;
}

// How a process ended.
struct Ended {
  int signal = 0;
  int status = -1;
};

class EndingSignalsTest : public testing::Test {
 protected:
  // Runs `program` in its own process. The program calls Ready() when the test
  // may send a signal.
  void Start(const std::function<void()>& program) {
    ASSERT_EQ(pipe(ready_), 0);
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ != 0) return;
    alarm(60);  // ends the process if the test fails
    program();
    _exit(0);
  }
  void Ready() { (void)!write(ready_[1], "x", 1); }
  void WaitUntilReady() {
    char byte = 0;
    ASSERT_EQ(read(ready_[0], &byte, 1), 1);
  }
  Ended Wait() {
    int status = 0;
    waitpid(child_, &status, 0);
    if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status), .status = -1};
    return {.signal = 0, .status = WEXITSTATUS(status)};
  }

  ProfileOptions Options(milliseconds grace, int64_t active) {
    return {.log_dir = folder_.At("log"),
            .name = "p",
            .schedule = {.wait = 0, .warmup = 0, .active = active},
            .print_report = false,
            .signal_grace = grace};
  }

  // Records three of many steps, and continues to step until a signal ends it.
  void RecordUntilASignal(milliseconds grace) {
    Profile profile(Options(grace, 1'000'000), &WithoutCollectors);
    for (int step = 0;; ++step) {
      std::this_thread::sleep_for(milliseconds(1));
      profile.Step();
      if (step == 3) Ready();
    }
  }

  static void EndWithStatusSeven(int) { _exit(7); }

  TempFolder folder_;
  int ready_[2] = {-1, -1};
  pid_t child_ = -1;
};

TEST_F(EndingSignalsTest, TheWindowIsKeptAndTheSignalEndsTheProgram) {
  for (int signal : {SIGTERM, SIGINT}) {
    Start([&] { RecordUntilASignal(std::chrono::minutes(1)); });
    WaitUntilReady();
    kill(child_, signal);
    EXPECT_EQ(Wait().signal, signal);
    const auto run = ResolvePath(folder_.At("log"));
    ASSERT_TRUE(run.ok()) << run.status().message();
    const auto trace = ReadTrace(run->trace_files.at(0));
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    EXPECT_GE(trace->steps().size(), 3u);
    std::filesystem::remove_all(folder_.At("log"));
  }
}

// After Finish(), the program has time to show its report.
TEST_F(EndingSignalsTest, WhereFinishDoesNotEndTheProgramTheDestructorDoes) {
  const auto parts = [](const ProfileOptions& options) {
    ProfileParts made = WithoutCollectors(options);
    made.finish_ends_program = false;
    return made;
  };
  Start([&] {
    Profile profile(Options(hours(1), 10), parts);
    profile.Step();
    if (profile.is_ending()) _exit(8);
    raise(SIGTERM);
    profile.Step();
    if (!profile.is_ending()) _exit(9);
    if (!ResolvePath(folder_.At("log")).ok()) _exit(10);
    (void)profile.Finish();
    Ready();
  });
  WaitUntilReady();
  EXPECT_EQ(Wait().signal, SIGTERM);
}

// For example, it waits in a collective for ranks that are gone.
TEST_F(EndingSignalsTest, AProgramThatEndsNoStepIsEndedAfterTheGrace) {
  Start([&] {
    Profile profile(Options(milliseconds(100), 10), &WithoutCollectors);
    profile.Step();
    Ready();
    while (true) std::this_thread::sleep_for(hours(1));
  });
  WaitUntilReady();
  kill(child_, SIGTERM);
  EXPECT_EQ(Wait().signal, SIGTERM);
}

TEST_F(EndingSignalsTest, ASecondSignalEndsTheProgramAtOnce) {
  Start([&] {
    Profile profile(Options(hours(1), 10), &WithoutCollectors);
    profile.Step();
    raise(SIGINT);
    Ready();
    while (true) std::this_thread::sleep_for(hours(1));
  });
  WaitUntilReady();
  kill(child_, SIGINT);
  EXPECT_EQ(Wait().signal, SIGINT);
}

TEST_F(EndingSignalsTest, AHandlerOfTheProgramStaysItsOwn) {
  for (bool before : {true, false}) {
    Start([&] {
      if (before) std::signal(SIGTERM, EndWithStatusSeven);
      Profile profile(Options(hours(1), 10), &WithoutCollectors);
      if (!before) std::signal(SIGTERM, EndWithStatusSeven);
      profile.Step();
      raise(SIGTERM);
    });
    EXPECT_EQ(Wait().status, 7);
  }
}

TEST_F(EndingSignalsTest, AnIgnoredSignalStaysIgnored) {
  Start([&] {
    std::signal(SIGINT, SIG_IGN);
    Profile profile(Options(hours(1), 10), &WithoutCollectors);
    raise(SIGINT);
    profile.Step();
    _exit(3);
  });
  EXPECT_EQ(Wait().status, 3);
}

// For example a loader worker: the profile belongs to its parent.
TEST_F(EndingSignalsTest, AForkedChildEndsByItsSignalAtOnce) {
  Start([&] {
    Profile profile(Options(hours(1), 10), &WithoutCollectors);
    profile.Step();
    const pid_t worker = fork();
    if (worker == 0) {
      while (true) std::this_thread::sleep_for(hours(1));
    }
    kill(worker, SIGTERM);
    int status = 0;
    waitpid(worker, &status, 0);
    _exit(WIFSIGNALED(status) ? WTERMSIG(status) : 99);
  });
  EXPECT_EQ(Wait().status, SIGTERM);
}

TEST_F(EndingSignalsTest, BehindTheProfileTheSystemHandlesThemAgain) {
  Start([&] {
    {
      Profile profile(Options(hours(1), 1), &WithoutCollectors);
      profile.Step();
    }
    struct sigaction now = {};
    sigaction(SIGTERM, nullptr, &now);
    _exit(now.sa_handler == SIG_DFL ? 5 : 6);
  });
  EXPECT_EQ(Wait().status, 5);
}

TEST_F(EndingSignalsTest, WithoutAGraceNoSignalIsTouched) {
  Start([&] {
    Profile profile(Options(milliseconds(0), 10), &WithoutCollectors);
    struct sigaction now = {};
    sigaction(SIGTERM, nullptr, &now);
    _exit(now.sa_handler == SIG_DFL ? 5 : 6);
  });
  EXPECT_EQ(Wait().status, 5);
}

}  // namespace
}  // namespace stepscope::ending_signals_test
