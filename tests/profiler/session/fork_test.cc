#include <gtest/gtest.h>
#include <stepscope/event_buffer.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "recorded.h"

namespace stepscope::fork_test {
namespace {

// Runs `child` in a forked process and returns its exit code.
template <typename Child>
int ExitCodeOf(Child&& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);  // ends a deadlock
    _exit(child());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(EventBufferForkTest, TheChildRecordsNothingAndTheParentGoesOn) {
  RecordedWindow window;
  const RangeToken outer = OpenRange(RangeKind::kUser, "outer");
  const int code = ExitCodeOf([&] {
    if (IsRecording()) return 1;
    if (OpenRange(RangeKind::kUser, "child").slot != nullptr) return 2;
    CloseRange(outer);
    const auto recording = window.Close();  // as ~Profile would do in the child
    TraceBuilder builder;
    const ClockReading now = ReadClock();
    recording->AddTo(builder, ClockMap(now, now));
    return builder.Build().ranges().empty() ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
  CloseRange(OpenRange(RangeKind::kUser, "after"));
  CloseRange(outer);
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ranges().size(), 2u);
  EXPECT_EQ(trace.name(trace.ranges()[0].name), "outer");
  EXPECT_EQ(trace.name(trace.ranges()[1].name), "after");
}

TEST(EventBufferForkTest, TheChildMayOpenAWindowOfItsOwn) {
  RecordedWindow window;
  CloseRange(OpenRange(RangeKind::kUser, "parent"));
  const int code = ExitCodeOf([] {
    RecordedWindow own;
    CloseRange(OpenRange(RangeKind::kUser, "child"));
    const Trace trace = own.CloseAndBuild();
    if (trace.ranges().size() != 1) return 1;
    if (trace.name(trace.ranges()[0].name) != "child") return 2;
    return trace.threads()[0].pid == getpid() ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(window.CloseAndBuild().ranges().size(), 1u);
}

TEST(EventBufferForkTest, SurvivesForksWhileOtherThreadsRecord) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  RecordedWindow window(int64_t{8} << 20);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&stop] {
      while (!stop.load(std::memory_order_relaxed)) {
        CloseRange(OpenRange(RangeKind::kUser, "busy"));
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ExitCodeOf([] {
                CloseRange(OpenRange(RangeKind::kUser, "child"));
                RecordedWindow own;
                CloseRange(OpenRange(RangeKind::kUser, "child"));
                return own.CloseAndBuild().ranges().size() == 1 ? 0 : 1;
              }),
              0);
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(window.CloseAndBuild().ranges().empty());
}

}  // namespace
}  // namespace stepscope::fork_test
