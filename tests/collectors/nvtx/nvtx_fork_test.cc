#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "nvtx_window.h"

namespace stepscope::nvtx_fork_test {
namespace {

// Runs `child` in a fork and returns its exit code.
template <typename Child>
int InFork(Child child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);  // turns a deadlock into a failure
    _exit(child());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(NvtxForkTest, AChildRecordsNothingAndTheParentGoesOn) {
  NvtxWindow window;
  nvtxRangePushA("parent");
  EXPECT_EQ(InFork([] {
              nvtxRangePushA("child");
              nvtxRangePop();
              return nvtxRangeStartA("child") == 0 ? 0 : 1;
            }),
            0);
  nvtxRangePop();
  EXPECT_THAT(RangeNames(window.Take()), testing::ElementsAre("parent"));
}

TEST(NvtxForkTest, AChildMayRecordAWindowOfItsOwn) {
  NvtxWindow window;
  EXPECT_EQ(InFork([] {
              NvtxWindow own;
              nvtxMarkA("child");
              const Trace trace = own.Take();
              return trace.ranges().size() == 1 &&
                             trace.threads()[0].pid == getpid()
                         ? 0
                         : 1;
            }),
            0);
  (void)window.Take();
}

TEST(NvtxForkTest, AForkFindsTheNamesUnlocked) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own allocator may be locked in the child";
#endif
  // NVTX looks for its tool at a program's first call. A child forked during
  // that call waits for ever inside NVTX, whatever the tool.
  nvtxMarkA("first");
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    for (int i = 0; !stop; ++i) {
      nvtxDomainRegisterStringA(nullptr, std::to_string(i % 1000).c_str());
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(InFork([] {
                return nvtxDomainRegisterStringA(nullptr, "1") != nullptr ? 0
                                                                          : 1;
              }),
              0);
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace stepscope::nvtx_fork_test
