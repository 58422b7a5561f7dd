#include <gtest/gtest.h>
#include <stepscope/event_buffer.h>
#include <stepscope/event_writer.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "recorded.h"

namespace stepscope::hammer_test {
namespace {

// Eight threads record nested ranges and operators without a pause while
// windows open and close. No window may contain a part of an event.
TEST(EventBufferHammerTest, WindowsOpenAndCloseUnderEightWriters) {
  constexpr int kThreads = 8;
  constexpr int kWindows = 100;
  static constexpr const char* kName = "hammered";
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&stop, t] {
      const std::string text(static_cast<size_t>(t * 7), 'a' + t);
      while (!stop.load(std::memory_order_relaxed)) {
        const RangeToken range = OpenRange(RangeKind::kUser, text, kName);
        int key = 0;
        {
          WriteScope scope;
          if (scope) {
            Slot* slot = scope.Reserve(1);
            if (slot != nullptr) {
              slot->word[2] = reinterpret_cast<uint64_t>(kName);
              slot->word[3] = PackTail(kOpSlot, t);
              slot->word[0] = NowTicks();
            }
            scope.Push(&key, slot);
          }
        }
        const Ticks now = NowTicks();
        {
          WriteScope scope;
          if (scope) {
            if (Slot* slot = scope.Pop(&key, now)) slot->word[1] = now;
          }
        }
        CloseRange(range);
      }
    });
  }
  size_t events = 0;
  for (int i = 0; i < kWindows; ++i) {
    RecordedWindow window(int64_t{1} << 20);  // two chunks per thread
    std::this_thread::yield();
    const Trace trace = window.CloseAndBuild();
    events += trace.ranges().size() + trace.ops().size();
    EXPECT_EQ(FindLoss(trace, "bad-record"), nullptr);
    for (const Range& range : trace.ranges()) {
      const std::string_view text = trace.name(range.name);
      ASSERT_EQ(text.size() % 7, 0u);
      ASSERT_EQ(text.find_first_not_of(text.empty() ? 'a' : text[0]),
                std::string_view::npos);
      ASSERT_EQ(trace.name(range.detail), kName);
      ASSERT_LE(range.begin_ns, range.end_ns);
    }
    for (const Op& op : trace.ops()) {
      ASSERT_EQ(trace.name(op.name), kName);
      ASSERT_LT(op.sequence, kThreads);
    }
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(events, 0u);
}

TEST(EventBufferHammerTest, ThreadsComeAndGoWhileWindowsOpenAndClose) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> spawners;
  for (int s = 0; s < 2; ++s) {
    spawners.emplace_back([&stop] {
      while (!stop.load(std::memory_order_relaxed)) {
        std::thread([] {
          for (int i = 0; i < 20; ++i) {
            CloseRange(OpenRange(RangeKind::kUser, "visitor"));
          }
        }).join();
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    RecordedWindow window(int64_t{8} << 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Trace trace = window.CloseAndBuild();
    for (const Range& range : trace.ranges()) {
      ASSERT_EQ(trace.name(range.name), "visitor");
    }
  }
  stop.store(true);
  for (std::thread& thread : spawners) thread.join();
}

}  // namespace
}  // namespace stepscope::hammer_test
