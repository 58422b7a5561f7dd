#include "cupti_fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buffer_pool.h"
#include "collectors/cupti/collector_fixture.h"

namespace stepscope::cupti_fork_test {
namespace {

using CuptiForkTest = CuptiCollectorFixture;

// Returns the result of `child` in a forked process.
template <typename Child>
int InChild(Child child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_F(CuptiForkTest, AChildTouchesNothingOfCupti) {
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  fake_.Deliver();
  const int failed = InChild([&] {
    if (!InForkedChild()) return 1;
    const int calls = fake_.call_count();
    if (absl::IsFailedPrecondition(Make()->Start()) == false) return 2;
    // Callbacks that the library may still make get nothing and do no harm.
    size_t bytes = 7;
    if (ProcessPool().Request(&bytes) != nullptr || bytes != 0) return 3;
    collector.reset();
    return fake_.call_count() == calls ? 0 : 4;
  });
  EXPECT_EQ(failed, 0);
  // The parent's window is complete.
  EXPECT_FALSE(InForkedChild());
  EXPECT_EQ(StopAndBuild(*collector).kernels().size(), 1u);
}

TEST_F(CuptiForkTest, AForkWhileThePoolsLockIsHeldDoesNotHangTheChild) {
  WatchForks();
  auto collector = Make();
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  auto recording = collector->Stop();
  ASSERT_TRUE(recording.ok());
  const int failed = InChild([&] {
    alarm(20);  // kills a child that hangs
    recording->reset();
    size_t bytes = 0;
    ProcessPool().Complete(nullptr, 0);
    return ProcessPool().Request(&bytes) == nullptr ? 0 : 1;
  });
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace stepscope::cupti_fork_test
