#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "torch_window.h"

namespace stepscope::torch_threads_test {
namespace {

using testing::SizeIs;

TEST(TorchThreadsTest, RecordsEveryThreadOnItsOwnRow) {
  TorchWindow window;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i <= t; ++i) at::ones({2});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Trace trace = window.CloseAndBuild();
  std::multiset<size_t> counts;
  std::set<uint64_t> torch_threads;
  for (size_t row = 0; row < trace.threads().size(); ++row) {
    size_t count = 0;
    for (const Op* op : OpsNamed(trace, "aten::ones")) {
      count += op->thread == row ? 1 : 0;
    }
    counts.insert(count);
    torch_threads.insert(trace.threads()[row].torch_thread);
  }
  EXPECT_EQ(counts, (std::multiset<size_t>{1, 2, 3}));
  EXPECT_THAT(torch_threads, SizeIs(3));
}

TEST(TorchThreadsTest, RecordsOperatorsInsideParallelFor) {
  at::set_num_threads(2);
  TorchWindow window;
  std::atomic<int> calls{0};
  at::parallel_for(0, 4, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      at::ones({2});
      ++calls;
    }
  });
  const Trace trace = window.CloseAndBuild();
  EXPECT_EQ(calls, 4);
  EXPECT_THAT(OpsNamed(trace, "aten::ones"), SizeIs(4));
  at::set_num_threads(1);
}

TEST(TorchThreadsTest, TakesTheEndOfAnAsyncFunctionFromAnotherThread) {
  TorchWindow window;
  auto async = std::make_unique<at::RecordFunction>(at::RecordScope::FUNCTION);
  async->before("async call");
  async->_setAsync();
  std::thread([&] {
    usleep(2000);
    async->end();
  }).join();
  at::ones({2});
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(OpsNamed(trace, "async call"), SizeIs(1));
  const Op& op = *OpsNamed(trace, "async call")[0];
  EXPECT_GE(op.end_ns - op.begin_ns, 2000000);
  EXPECT_LE(op.end_ns, OpsNamed(trace, "aten::ones")[0]->begin_ns);
}

TEST(TorchThreadsTest, AForkedChildRunsOperatorsAndExitsInPeace) {
  const at::Tensor a = at::ones({4, 8});
  TorchWindow window;
  a.add(a);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    const at::Tensor b = a.add(a);
    _exit(b.sum().item<float>() == 64 ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  a.add(a);
  const Trace trace = window.CloseAndBuild();
  EXPECT_THAT(OpsNamed(trace, "aten::add"), SizeIs(2));
  EXPECT_TRUE(OpsNamed(trace, "aten::sum").empty());
}

// Eight threads run real operators while windows open and close.
TEST(TorchThreadsTest, WindowsOpenAndCloseUnderEightThreadsOfOperators) {
  const at::Tensor a = at::ones({4});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&stop, a] {
      while (!stop.load(std::memory_order_relaxed)) {
        RECORD_USER_SCOPE("scope");
        a.add(a);
      }
    });
  }
  size_t ops = 0;
  for (int i = 0; i < 200; ++i) {
    TorchWindow window({.record_shapes = i % 2 == 1});
    std::this_thread::yield();
    const Trace trace = window.CloseAndBuild();
    ops += trace.ops().size();
    for (const Op& op : trace.ops()) {
      ASSERT_EQ(trace.name(op.name), "aten::add");
      ASSERT_LE(op.begin_ns, op.end_ns);
    }
    for (const Range& range : trace.ranges()) {
      ASSERT_EQ(trace.name(range.name), "scope");
    }
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(ops, 0u);
}

}  // namespace
}  // namespace stepscope::torch_threads_test
