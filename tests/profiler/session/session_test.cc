#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/range.h>
#include <stepscope/session.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fakes/fake_collector.h"

namespace stepscope::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SessionTest : public ::testing::Test {
 protected:
  // Adds a collector. Its log can be read during and after the session.
  std::shared_ptr<FakeCollector::Log> Watch(
      FakeCollector::Behaviour behaviour) {
    auto log = std::make_shared<FakeCollector::Log>();
    options_.collectors.push_back(
        std::make_unique<FakeCollector>(std::move(behaviour), log));
    return log;
  }

  std::unique_ptr<Session> Make(Schedule schedule) {
    options_.name = "test";
    options_.schedule = schedule;
    options_.on_error = [this](const absl::Status& error) {
      errors_.push_back(std::string(error.message()));
    };
    auto session = Session::Make(std::move(options_));
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  // Runs `steps` steps, each longer than the difference between the clocks of
  // two cores. Returns the windows that closed.
  static std::vector<std::unique_ptr<ClosedWindow>> Run(Session& session,
                                                        int steps) {
    std::vector<std::unique_ptr<ClosedWindow>> windows;
    for (int i = 0; i < steps; ++i) {
      usleep(20);
      if (auto window = session.Step()) windows.push_back(std::move(window));
    }
    return windows;
  }

  Session::Options options_;
  std::vector<std::string> errors_;
};

std::vector<int64_t> StepNumbers(const Trace& trace) {
  std::vector<int64_t> numbers;
  for (const Step& step : trace.steps()) numbers.push_back(step.number);
  return numbers;
}

TEST_F(SessionTest, CallsACollectorFromWarmUpToTheWindowsEnd) {
  const auto log = Watch({});
  const auto session = Make({.wait = 1, .warmup = 1, .active = 2});
  EXPECT_THAT(Run(*session, 6), SizeIs(1));
  EXPECT_THAT(log->calls, ElementsAre("start", "sample", "step 1", "step 2",
                                      "step 3", "stop"));
  EXPECT_TRUE(session->done());
  EXPECT_THAT(errors_, IsEmpty());
}

// The session arms a collector when it is created and at the end of each step,
// until its first window opens.
TEST_F(SessionTest, ArmsCollectorsUntilTheFirstWindow) {
  const auto log = Watch({});
  const auto session = Make({.wait = 2, .warmup = 1, .active = 1, .repeat = 2});
  EXPECT_EQ(log->arms, 1);
  (void)Run(*session, 1);
  EXPECT_EQ(log->arms, 2);
  EXPECT_EQ(log->starts, 0);
  (void)Run(*session, 1);
  EXPECT_EQ(log->arms, 3);
  EXPECT_EQ(log->starts, 1);
  (void)Run(*session, 6);
  EXPECT_EQ(log->starts, 2);
  EXPECT_EQ(log->arms, 3);
}

TEST_F(SessionTest, NamesTheLastStepBeforeTheWindowForACloseLook) {
  const auto calls = [&](const Schedule& schedule, int steps) {
    const auto log = Watch({});
    const auto session = Make(schedule);
    Run(*session, steps);
    return log->calls;
  };
  EXPECT_THAT(calls({.wait = 0, .warmup = 3, .active = 1}, 4),
              ElementsAre("start", "step 0", "step 1", "sample", "step 2",
                          "step 3", "stop"));
  EXPECT_THAT(
      calls({.wait = 1, .warmup = 0, .active = 2}, 3),
      ElementsAre("start", "sample recorded", "step 1", "step 2", "stop"));
  EXPECT_THAT(calls({.wait = 0, .warmup = 1, .active = 1, .repeat = 2}, 4),
              ElementsAre("start", "sample", "step 0", "step 1", "stop",
                          "start", "sample", "step 2", "step 3", "stop"));
}

TEST_F(SessionTest, TimeBetweenMarkedStepsBelongsToNone) {
  const auto log = Watch({});
  options_.marked_steps = true;
  const auto session = Make({.wait = 1, .warmup = 1, .active = 2});
  std::unique_ptr<ClosedWindow> window;
  for (int step = 0; step < 4; ++step) {
    usleep(2000);
    session->BeginStep();
    usleep(100);
    window = session->Step();
  }
  EXPECT_THAT(log->calls, ElementsAre("start", "sample", "pause", "resume",
                                      "step 1", "pause", "resume", "step 2",
                                      "pause", "resume", "step 3", "stop"));
  ASSERT_NE(window, nullptr);
  const Trace trace = window->Build({});
  ASSERT_THAT(StepNumbers(trace), ElementsAre(2, 3));
  EXPECT_EQ(trace.run().window_begin_ns, trace.steps()[0].begin_ns);
  EXPECT_GE(trace.steps()[1].begin_ns - trace.steps()[0].end_ns, 2'000'000);
}

TEST_F(SessionTest, OtherStepsHaveNoBeginOfTheirOwn) {
  const auto log = Watch({});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1});
  session->BeginStep();
  EXPECT_NE(session->Step(), nullptr);
  EXPECT_THAT(log->calls,
              ElementsAre("start", "sample recorded", "step 0", "stop"));
}

TEST_F(SessionTest, DestroysItsCollectorsWithTheLastCycle) {
  const auto log = Watch({});
  const auto session = Make({.wait = 1, .warmup = 0, .active = 1, .repeat = 2});
  EXPECT_THAT(Run(*session, 3), SizeIs(1));
  EXPECT_EQ(log.use_count(), 2);  // another cycle follows
  EXPECT_THAT(Run(*session, 1), SizeIs(1));
  EXPECT_EQ(log.use_count(), 1);
}

TEST_F(SessionTest, DestroysItsCollectorsWhenTheLoopEndsEarly) {
  const auto log = Watch({});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 9});
  Run(*session, 2);
  EXPECT_NE(session->End(), nullptr);
  EXPECT_EQ(log.use_count(), 1);
  EXPECT_EQ(log->stops, 1);
}

TEST_F(SessionTest, RecordsFromTheVeryFirstStepWhereNothingComesBefore) {
  const auto log = Watch({});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1});
  EXPECT_TRUE(IsRecording());
  const auto windows = Run(*session, 1);
  ASSERT_THAT(windows, SizeIs(1));
  EXPECT_FALSE(IsRecording());
  EXPECT_THAT(StepNumbers(windows[0]->Build({})), ElementsAre(0));
}

TEST_F(SessionTest, NumbersStepsAsTheLoopCountsAndTilesTheWindow) {
  const auto session = Make({.wait = 2, .warmup = 1, .active = 3});
  const auto windows = Run(*session, 6);
  ASSERT_THAT(windows, SizeIs(1));
  EXPECT_EQ(windows[0]->steps(), 3);
  RunInfo run;
  run.name = "loop";
  const Trace trace = windows[0]->Build(run);
  EXPECT_EQ(trace.run().name, "loop");
  ASSERT_THAT(StepNumbers(trace), ElementsAre(3, 4, 5));
  EXPECT_EQ(trace.run().window_begin_ns, trace.steps()[0].begin_ns);
  EXPECT_EQ(trace.steps()[0].end_ns, trace.steps()[1].begin_ns);
  EXPECT_EQ(trace.steps()[1].end_ns, trace.steps()[2].begin_ns);
  EXPECT_EQ(trace.run().window_end_ns, trace.steps()[2].end_ns);
  EXPECT_TRUE(trace.watched(Kind::kStep));
  ASSERT_NE(trace.run().training_thread, kNone);
  EXPECT_EQ(trace.threads()[trace.run().training_thread].tid, gettid());
  EXPECT_EQ(trace.run().pid, getpid());
}

TEST_F(SessionTest, TimesTheWaitStepsButNotTheFirstOfTheLoop) {
  const auto session = Make({.wait = 3, .warmup = 1, .active = 1});
  std::vector<std::unique_ptr<ClosedWindow>> windows;
  for (int i = 0; i < 5; ++i) {
    usleep(i == 0 ? 40'000 : 2'000);
    if (auto window = session->Step()) windows.push_back(std::move(window));
  }
  ASSERT_THAT(windows, SizeIs(1));
  const Trace trace = windows[0]->Build({});
  ASSERT_THAT(trace.run().wait_step_ns, SizeIs(2));
  for (int64_t ns : trace.run().wait_step_ns) EXPECT_GE(ns, 2'000'000);
}

TEST_F(SessionTest, KeepsOnlyTheLastWaitStepsOfALongWait) {
  const auto session = Make({.wait = 1000, .warmup = 1, .active = 1});
  const auto windows = Run(*session, 1002);
  ASSERT_THAT(windows, SizeIs(1));
  EXPECT_THAT(windows[0]->Build({}).run().wait_step_ns, SizeIs(32));
}

TEST_F(SessionTest, GivesAWindowPerCycleAndTimesEachWait) {
  const auto log = Watch({});
  const auto session = Make({.wait = 2, .warmup = 1, .active = 1, .repeat = 3});
  const auto windows = Run(*session, 20);
  ASSERT_THAT(windows, SizeIs(3));
  EXPECT_EQ(log->starts, 3);
  for (int64_t cycle = 0; cycle < 3; ++cycle) {
    const Trace trace = windows[cycle]->Build({});
    EXPECT_EQ(trace.run().cycle, cycle);
    EXPECT_THAT(StepNumbers(trace), ElementsAre(3 + 4 * cycle));
    EXPECT_THAT(trace.run().wait_step_ns, SizeIs(cycle == 0 ? 1 : 2));
  }
}

TEST_F(SessionTest, CyclesWithoutAPauseBetweenThemDoNotRunTogether) {
  const auto session = Make({.wait = 0, .warmup = 0, .active = 2, .repeat = 2});
  const auto windows = Run(*session, 4);
  ASSERT_THAT(windows, SizeIs(2));
  EXPECT_THAT(StepNumbers(windows[0]->Build({})), ElementsAre(0, 1));
  EXPECT_THAT(StepNumbers(windows[1]->Build({})), ElementsAre(2, 3));
}

TEST_F(SessionTest, AStepPastTheEndDoesNothing) {
  const auto log = Watch({});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1});
  Run(*session, 1);
  const auto calls = log->calls;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(session->Step(), nullptr);
  EXPECT_EQ(log->calls, calls);
  EXPECT_EQ(session->steps(), 1);
  EXPECT_EQ(session->End(), nullptr);
}

TEST_F(SessionTest, EndKeepsTheStepsSoFar) {
  const auto log = Watch({});
  const auto session = Make({.wait = 1, .warmup = 1, .active = 3});
  EXPECT_THAT(Run(*session, 4), IsEmpty());
  const auto window = session->End();
  ASSERT_NE(window, nullptr);
  EXPECT_EQ(window->steps(), 2);
  EXPECT_THAT(log->calls, testing::Contains("stop"));
  const Trace trace = window->Build({});
  EXPECT_THAT(StepNumbers(trace), ElementsAre(2, 3));
  EXPECT_GE(trace.run().window_end_ns, trace.steps()[1].end_ns);
}

// Otherwise, in a loop that ends during its second recorded step, six calls per
// step would become twelve in the report.
TEST_F(SessionTest, AnUnfinishedStepIsNotCountedToTheOthers) {
  const auto session = Make({.wait = 0, .warmup = 1, .active = 3});
  for (int step = 0; step < 3; ++step) {
    for (int call = 0; call < 6; ++call) {
      CloseRange(OpenRange(RangeKind::kUser, "call"));
    }
    usleep(100);
    if (step < 2) session->Step();
  }
  const auto window = session->End();
  ASSERT_NE(window, nullptr);
  const Trace trace = window->Build({});
  EXPECT_THAT(StepNumbers(trace), ElementsAre(1));
  EXPECT_THAT(trace.ranges(), SizeIs(6));
  EXPECT_EQ(trace.run().window_end_ns, trace.steps()[0].end_ns);
}

TEST_F(SessionTest, WithoutACompleteStepWhatThereIsStays) {
  const auto session = Make({.wait = 0, .warmup = 1, .active = 3});
  Run(*session, 1);
  CloseRange(OpenRange(RangeKind::kUser, "call"));
  usleep(100);
  const auto window = session->End();
  ASSERT_NE(window, nullptr);
  EXPECT_EQ(window->steps(), 0);
  EXPECT_THAT(window->Build({}).ranges(), SizeIs(1));
}

TEST_F(SessionTest, EndInWarmUpStopsEverythingAndGivesNothing) {
  const auto log = Watch({});
  const auto session = Make({.wait = 0, .warmup = 3, .active = 3});
  Run(*session, 2);
  EXPECT_EQ(session->End(), nullptr);
  EXPECT_FALSE(IsRecording());
  EXPECT_THAT(log->calls,
              ElementsAre("start", "step 0", "step 1", "sample", "stop"));
}

TEST_F(SessionTest, ADestroyedSessionStopsItsCollectors) {
  const auto log = Watch({});
  {
    const auto session = Make({.wait = 0, .warmup = 0, .active = 3});
    Run(*session, 1);
  }
  EXPECT_EQ(log->stops, 1);
  EXPECT_FALSE(IsRecording());
}

TEST_F(SessionTest, ACollectorThatCannotStartIsLeftOutAndTheReasonTravels) {
  const auto broken = Watch(
      {.name = "broken",
       .fail_starts = {1},
       .error = absl::FailedPreconditionError("held by another profiler")});
  const auto fine = Watch({});
  const auto session = Make({.wait = 0, .warmup = 1, .active = 1});
  const auto windows = Run(*session, 2);
  ASSERT_THAT(windows, SizeIs(1));
  EXPECT_THAT(broken->calls, ElementsAre("start"));
  EXPECT_THAT(fine->calls,
              ElementsAre("start", "sample", "step 0", "step 1", "stop"));
  EXPECT_THAT(errors_, ElementsAre("held by another profiler"));
  const Trace trace = windows[0]->Build({});
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "broken-unavailable");
  EXPECT_EQ(trace.losses()[0].detail, "held by another profiler");
  EXPECT_EQ(trace.losses()[0].severity, Severity::kWarning);
}

TEST_F(SessionTest, ASourceThatIsNotThereIsANoteAndNoError) {
  Watch({.name = "cupti",
         .fail_starts = {1},
         .error = absl::UnavailableError("no NVIDIA driver found")});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1});
  const auto windows = Run(*session, 1);
  ASSERT_THAT(windows, SizeIs(1));
  EXPECT_THAT(errors_, IsEmpty());
  const Trace trace = windows[0]->Build({});
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].severity, Severity::kNote);
}

TEST_F(SessionTest, ACollectorThatFailedOnceIsTriedAgainInTheNextCycle) {
  const auto log = Watch({.fail_starts = {1}});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1, .repeat = 2});
  const auto windows = Run(*session, 2);
  ASSERT_THAT(windows, SizeIs(2));
  EXPECT_EQ(log->starts, 2);
  EXPECT_THAT(windows[0]->Build({}).losses(), SizeIs(1));
  EXPECT_THAT(windows[1]->Build({}).losses(), IsEmpty());
}

TEST_F(SessionTest, TheSameFailureInEachCycleIsToldOnce) {
  Watch({.fail_starts = {1, 2, 3}});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1, .repeat = 3});
  const auto windows = Run(*session, 3);
  EXPECT_THAT(windows, SizeIs(3));
  EXPECT_THAT(errors_, SizeIs(1));
  for (const auto& window : windows) {
    EXPECT_THAT(window->Build({}).losses(), SizeIs(1));
  }
}

TEST_F(SessionTest, AFailedStopLosesThatSourceOnly) {
  Watch({.name = "broken", .fail_stops = {1}});
  Watch({.name = "fine"});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1});
  const auto windows = Run(*session, 1);
  ASSERT_THAT(windows, SizeIs(1));
  const Trace trace = windows[0]->Build({});
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "broken-stop-failed");
  EXPECT_TRUE(trace.watched(Kind::kOp));  // by the other collector
  EXPECT_THAT(errors_, SizeIs(1));
}

TEST_F(SessionTest, ADecoderThatThrowsBecomesALoss) {
  Watch({.throw_in_decode = true});
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1});
  const auto windows = Run(*session, 1);
  ASSERT_THAT(windows, SizeIs(1));
  const Trace trace = windows[0]->Build({});
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "decode-failed");
  EXPECT_THAT(trace.losses()[0].detail, HasSubstr("damaged"));
  EXPECT_THAT(StepNumbers(trace), ElementsAre(0));
}

TEST_F(SessionTest, RangesOfWarmUpStepsAreClippedAway) {
  const auto session = Make({.wait = 0, .warmup = 2, .active = 1});
  std::unique_ptr<ClosedWindow> window;
  for (int i = 0; i < 3; ++i) {
    const RangeToken token =
        OpenRange(RangeKind::kUser, "step " + std::to_string(i));
    usleep(100);
    CloseRange(token);
    usleep(100);
    if (auto closed = session->Step()) window = std::move(closed);
  }
  ASSERT_NE(window, nullptr);
  const Trace trace = window->Build({});
  ASSERT_THAT(trace.ranges(), SizeIs(1));
  EXPECT_EQ(trace.name(trace.ranges()[0].name), "step 2");
}

TEST_F(SessionTest, RowsReadOncePerStepOfWarmUpAreClippedAway) {
  Watch({.rows = [](TraceBuilder& builder, const ClockMap& clock) {
    for (int64_t step = 0; step < 3; ++step) {
      builder.Add(Settings{.step = step, .time_ns = clock.end_ns()});
      builder.Add(HostUsage{.step = step});
    }
  }});
  const auto session = Make({.wait = 0, .warmup = 2, .active = 1});
  const auto windows = Run(*session, 3);
  ASSERT_THAT(windows, SizeIs(1));
  const Trace trace = windows[0]->Build({});
  ASSERT_THAT(trace.settings(), SizeIs(1));
  EXPECT_EQ(trace.settings()[0].step, 2);
  ASSERT_THAT(trace.host_usage(), SizeIs(1));
  EXPECT_EQ(trace.host_usage()[0].step, 2);
}

TEST_F(SessionTest, TheThreadThatStepsIsTakenForTheOneThatTrainsAndThatIsSaid) {
  const auto session = Make({.wait = 1, .warmup = 1, .active = 1});
  std::vector<std::unique_ptr<ClosedWindow>> windows;
  int64_t tid = 0;
  std::thread([&] {
    tid = gettid();
    windows = Run(*session, 3);
  }).join();
  ASSERT_THAT(windows, SizeIs(1));
  const Trace trace = windows[0]->Build({});
  EXPECT_EQ(trace.threads()[trace.run().training_thread].tid, tid);
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "training-thread");
  EXPECT_EQ(trace.losses()[0].severity, Severity::kWarning);
  EXPECT_THAT(trace.losses()[0].detail, HasSubstr(std::to_string(tid)));
}

TEST_F(SessionTest, AStepFromAnotherThreadInsideTheWindowIsAnError) {
  const auto session = Make({.wait = 0, .warmup = 1, .active = 3});
  Run(*session, 2);
  std::thread([&] { Run(*session, 1); }).join();
  const auto windows = Run(*session, 1);
  ASSERT_THAT(windows, SizeIs(1));
  const Trace trace = windows[0]->Build({});
  EXPECT_EQ(trace.threads()[trace.run().training_thread].tid, gettid());
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "step-threads");
  EXPECT_EQ(trace.losses()[0].count, 2);  // there and back again
  EXPECT_EQ(trace.losses()[0].severity, Severity::kError);
}

TEST_F(SessionTest, ANamedTrainingThreadMayBeAnotherThanTheOneThatSteps) {
  options_.training_tid = gettid();
  const auto session = Make({.wait = 0, .warmup = 1, .active = 1});
  std::vector<std::unique_ptr<ClosedWindow>> windows;
  std::thread([&] { windows = Run(*session, 2); }).join();
  ASSERT_THAT(windows, SizeIs(1));
  const Trace trace = windows[0]->Build({});
  EXPECT_EQ(trace.threads()[trace.run().training_thread].tid, gettid());
  EXPECT_THAT(trace.losses(), IsEmpty());
}

TEST_F(SessionTest, ASecondSessionIsRefusedByNameUntilTheFirstIsDone) {
  const auto first = Make({.wait = 0, .warmup = 0, .active = 1});
  auto second = Session::Make({.name = "second"});
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("\"test\""));
  Run(*first, 1);
  second = Session::Make({.name = "second"});
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST_F(SessionTest, ARefusedScheduleDoesNotKeepOthersOut) {
  EXPECT_TRUE(absl::IsInvalidArgument(
      Session::Make({.name = "bad", .schedule = {.active = 0}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Session::Make({.name = "bad", .first_step = -1}).status()));
  EXPECT_TRUE(Session::Make({.name = "good"}).ok());
}

TEST_F(SessionTest, BuffersThatCannotOpenAreALossAndAnError) {
  const auto log = Watch({});
  options_.buffers.max_buffer_bytes = 0;
  const auto session = Make({.wait = 0, .warmup = 0, .active = 1});
  const auto windows = Run(*session, 1);
  EXPECT_THAT(errors_, SizeIs(1));
  EXPECT_THAT(log->calls, IsEmpty());
  ASSERT_THAT(windows, SizeIs(1));
  const Trace trace = windows[0]->Build({});
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "buffers-unavailable");
  EXPECT_THAT(StepNumbers(trace), ElementsAre(0));
}

TEST_F(SessionTest, AForkedChildIsLeftAloneAndTheParentGoesOn) {
  const auto log = Watch({});
  auto session = Make({.wait = 0, .warmup = 0, .active = 2});
  session->Step();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const size_t calls = log->calls.size();
    bool quiet = session->in_forked_child() && session->Step() == nullptr &&
                 session->End() == nullptr;
    session.reset();
    quiet = quiet && log->calls.size() == calls;
    // The child may profile independently.
    quiet = quiet && Session::Make({.name = "child"}).ok();
    _exit(quiet ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(session->in_forked_child());
  const auto window = session->Step();
  ASSERT_NE(window, nullptr);
  EXPECT_THAT(StepNumbers(window->Build({})), ElementsAre(0, 1));
}

}  // namespace
}  // namespace stepscope::session_test
