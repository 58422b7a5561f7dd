#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "nvtx_window.h"

namespace stepscope::nvtx_threads_test {
namespace {

TEST(NvtxThreadsTest, ARangeMayEndOnAnotherThread) {
  NvtxWindow window;
  nvtxRangePushA("starter's");
  const nvtxRangeId_t id = nvtxRangeStartA("crossing");
  nvtxRangePop();
  std::thread([&] {
    nvtxMarkA("ender's");
    nvtxRangeEnd(id);
  }).join();
  const Trace trace = window.Take();
  const Range crossing = RangeNamed(trace, "crossing");
  EXPECT_LT(crossing.begin_ns, RangeNamed(trace, "starter's").end_ns);
  EXPECT_GT(crossing.end_ns, RangeNamed(trace, "ender's").begin_ns);
  EXPECT_EQ(DetailOf(trace, "crossing"), "thread=" + std::to_string(gettid()));
  EXPECT_EQ(NameOf(trace, trace.threads()[crossing.thread].name),
            "NVTX ranges 1");
}

TEST(NvtxThreadsTest, ThreadsRecordSideBySide) {
  constexpr int kThreads = 16;
  constexpr int kRanges = 500;
  NvtxWindow window;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      const std::string name = "thread " + std::to_string(t);
      for (int i = 0; i < kRanges; ++i) {
        nvtxRangePushA(name.c_str());
        nvtxRangeEnd(nvtxRangeStartA("started"));
        nvtxRangePop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Trace trace = window.Take();
  std::map<std::string, int> counts;
  std::map<std::string, RowId> rows;
  for (const Range& range : trace.ranges()) {
    const std::string name = NameOf(trace, range.name);
    ++counts[name];
    if (name == "started") continue;
    EXPECT_EQ(rows.try_emplace(name, range.thread).first->second, range.thread);
  }
  EXPECT_EQ(counts.size(), kThreads + 1u);
  EXPECT_EQ(counts["started"], kThreads * kRanges);
  EXPECT_EQ(counts["thread 0"], kRanges);
  EXPECT_EQ(counts["thread 15"], kRanges);
  EXPECT_THAT(trace.losses(), testing::IsEmpty());
}

TEST(NvtxThreadsTest, WindowsCloseWhileThreadsRecord) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&stop] {
      const nvtxDomainHandle_t domain = nvtxDomainCreateA("busy");
      nvtxEventAttributes_t attributes = {};
      attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
      attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
      while (!stop) {
        attributes.message.registered =
            nvtxDomainRegisterStringA(domain, "registered");
        nvtxDomainRangePushEx(domain, &attributes);
        const nvtxRangeId_t id = nvtxDomainRangeStartEx(domain, &attributes);
        nvtxDomainRangePop(domain);
        nvtxDomainRangeEnd(domain, id);
      }
    });
  }
  size_t ranges = 0;
  for (int i = 0; i < 8; ++i) {
    NvtxWindow window;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const Trace trace = window.Take();
    for (const std::string& name : RangeNames(trace)) {
      ASSERT_EQ(name, "registered");
    }
    ranges += trace.ranges().size();
    EXPECT_EQ(LossCount(trace, "bad-record"), 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(ranges, 0u);
}

TEST(NvtxThreadsTest, NamesThreadsWhetherTheyRecordOrNot) {
  nvtxNameOsThreadA(static_cast<uint32_t>(gettid()), "the tester");
  std::atomic<int64_t> tid = 0;
  std::atomic<bool> stop = false;
  std::thread silent([&] {
    nvtxNameOsThreadW(static_cast<uint32_t>(gettid()), L"still w\u00e4ters");
    tid = gettid();
    while (!stop) std::this_thread::yield();
  });
  while (tid == 0) std::this_thread::yield();
  NvtxWindow window;
  nvtxMarkA("something");
  const Trace trace = window.Take();
  stop = true;
  silent.join();
  std::map<int64_t, std::string> names;
  for (const Thread& thread : trace.threads()) {
    EXPECT_EQ(thread.pid, getpid());
    names[thread.tid] = NameOf(trace, thread.name);
  }
  // NVTX's name, not the system's name of the thread, which the program sets.
  EXPECT_EQ(names[gettid()], "the tester");
  EXPECT_EQ(names[tid], "still w\u00e4ters");
  // That thread has ended, so the next thread with its number has another name.
  NvtxWindow second;
  (void)second.Take();
  NvtxWindow third;
  const Trace last = third.Take();
  for (const Thread& thread : last.threads()) {
    EXPECT_NE(thread.tid, tid);
  }
}

TEST(NvtxThreadsTest, AThreadIsAResourceThatCanBeNamed) {
  nvtxResourceAttributes_t attributes = {};
  attributes.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
  attributes.identifierType = NVTX_RESOURCE_TYPE_GENERIC_THREAD_NATIVE;
  attributes.identifier.ullValue = static_cast<uint64_t>(gettid());
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("resources");
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered =
      nvtxDomainRegisterStringA(domain, "a resource");
  nvtxDomainResourceCreate(domain, &attributes);
  NvtxWindow window;
  nvtxMarkA("x");
  const Trace trace = window.Take();
  const Thread thread = trace.threads()[RangeNamed(trace, "x").thread];
  EXPECT_EQ(NameOf(trace, thread.name), "a resource");
}

}  // namespace
}  // namespace stepscope::nvtx_threads_test
