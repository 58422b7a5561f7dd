#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stepscope/event_buffer.h>
#include <stepscope/event_writer.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "recorded.h"

namespace stepscope::event_buffer_test {
namespace {

// Records operators as a collector does, without LibTorch.
bool StartOp(const void* key, const char* name) {
  WriteScope scope;
  if (!scope) return false;
  Slot* slot = scope.Reserve(1);
  if (slot != nullptr) {
    slot->word[2] = reinterpret_cast<uint64_t>(name);
    slot->word[3] = PackTail(kOpSlot, -1);
  }
  scope.Push(key, slot);
  if (slot != nullptr) slot->word[0] = NowTicks();
  return slot != nullptr;
}

void EndOp(const void* key) {
  const Ticks now = NowTicks();
  WriteScope scope;
  if (!scope) return;
  if (Slot* slot = scope.Pop(key, now)) slot->word[1] = now;
}

const Op& OpNamed(const Trace& trace, std::string_view name) {
  for (const Op& op : trace.ops()) {
    if (trace.name(op.name) == name) return op;
  }
  ADD_FAILURE() << "no op " << name;
  static const Op none;
  return none;
}

TEST(EventBufferTest, RecordsARangeWithNameDetailKindAndThread) {
  const int64_t before = NowNs();
  RecordedWindow window;
  const RangeToken token =
      OpenRange(RangeKind::kModule, "layer1.0.conv1", "Conv2d");
  CloseRange(token);
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ranges().size(), 1u);
  const Range& range = trace.ranges()[0];
  EXPECT_EQ(trace.name(range.name), "layer1.0.conv1");
  EXPECT_EQ(trace.name(range.detail), "Conv2d");
  EXPECT_EQ(range.kind, RangeKind::kModule);
  EXPECT_GE(range.begin_ns, before - 1000000);
  EXPECT_GE(range.end_ns, range.begin_ns);
  EXPECT_LE(range.end_ns, NowNs() + 1000000);
  ASSERT_EQ(trace.threads().size(), 1u);
  EXPECT_EQ(trace.threads()[range.thread].tid, gettid());
  EXPECT_EQ(trace.threads()[range.thread].pid, getpid());
  EXPECT_TRUE(trace.watched(Kind::kRange));
  EXPECT_TRUE(trace.losses().empty());
}

TEST(EventBufferTest, RecordsNothingWhileNoWindowIsOpen) {
  EXPECT_FALSE(IsRecording());
  const RangeToken token = OpenRange(RangeKind::kUser, "outside");
  EXPECT_EQ(token.slot, nullptr);
  CloseRange(token);
  RecordedWindow window;
  EXPECT_TRUE(IsRecording());
  EXPECT_TRUE(window.CloseAndBuild().ranges().empty());
  EXPECT_FALSE(IsRecording());
}

// For example, a thread that lost its core to other threads, or that a debugger
// stopped.
TEST(EventBufferTest, AThreadThatStaysInsideAWriteIsNotWaitedForForEver) {
  RecordedWindow window;
  CloseRange(OpenRange(RangeKind::kUser, "of this thread"));
  std::promise<void> inside;
  std::promise<void> leave;
  std::promise<void> left;
  std::promise<void> record;
  std::thread stuck([&] {
    CloseRange(OpenRange(RangeKind::kUser, "of the stuck thread"));
    {
      WriteScope scope;
      inside.set_value();
      leave.get_future().wait();
    }
    left.set_value();
    record.get_future().wait();
    CloseRange(OpenRange(RangeKind::kUser, "later"));
  });
  inside.get_future().wait();
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ranges().size(), 1u);
  EXPECT_EQ(trace.name(trace.ranges()[0].name), "of this thread");
  const Loss* const loss = FindLoss(trace, "unfinished-threads");
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->count, 1);
  EXPECT_EQ(loss->severity, Severity::kError);

  // The next window records this thread again.
  leave.set_value();
  left.get_future().wait();
  RecordedWindow next;
  record.set_value();
  stuck.join();
  const Trace later = next.CloseAndBuild();
  ASSERT_EQ(later.ranges().size(), 1u);
  EXPECT_EQ(later.name(later.ranges()[0].name), "later");
  EXPECT_TRUE(later.losses().empty());
}

TEST(EventBufferTest, RefusesASecondWindowAndSaysWhy) {
  RecordedWindow window;
  const auto second = EventBuffers::Open({});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(second.status().message()).find("already open"),
            std::string::npos);
  window.Close();
  EXPECT_TRUE(EventBuffers::Open({}).ok());  // its destructor closes it
  EXPECT_FALSE(IsRecording());
}

TEST(EventBufferTest, RefusesALimitBelowOneChunk) {
  EXPECT_EQ(EventBuffers::Open({.max_buffer_bytes = 100}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(IsRecording());
}

TEST(EventBufferTest, NestsOperatorsByTheirParents) {
  const int a = 0, b = 0, c = 0;
  RecordedWindow window;
  StartOp(&a, "outer");
  StartOp(&b, "inner");
  EndOp(&b);
  StartOp(&c, "second");
  EndOp(&c);
  EndOp(&a);
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ops().size(), 3u);
  EXPECT_EQ(OpNamed(trace, "outer").parent, kNone);
  EXPECT_EQ(trace.ops()[OpNamed(trace, "inner").parent].name,
            OpNamed(trace, "outer").name);
  EXPECT_EQ(trace.ops()[OpNamed(trace, "second").parent].name,
            OpNamed(trace, "outer").name);
  EXPECT_LE(OpNamed(trace, "inner").end_ns, OpNamed(trace, "second").begin_ns);
}

TEST(EventBufferTest, EndsAnOpenOperatorWhenTheWindowCloses) {
  const int key = 0;
  RecordedWindow window;
  StartOp(&key, "long");
  const auto recording = window.Close();
  const int64_t closed = NowNs();
  EndOp(&key);  // too late, but harmless
  const Trace trace = window.Build(*recording);
  ASSERT_EQ(trace.ops().size(), 1u);
  EXPECT_GT(trace.ops()[0].end_ns, trace.ops()[0].begin_ns);
  EXPECT_LE(trace.ops()[0].end_ns, closed + 1000000);
}

TEST(EventBufferTest, IgnoresTheEndOfWhatBeganBeforeTheWindow) {
  const int early = 0, key = 0;
  StartOp(&early, "early");
  RecordedWindow window;
  StartOp(&key, "op");
  EndOp(&early);
  EndOp(&key);
  EndOp(&early);
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(trace.name(trace.ops()[0].name), "op");
  EXPECT_TRUE(trace.losses().empty());
}

TEST(EventBufferTest, DoesNotFillARangeOfAWindowThatClosed) {
  RecordedWindow first;
  const RangeToken token = OpenRange(RangeKind::kUser, "first");
  first.Close();
  RecordedWindow second;
  OpenRange(RangeKind::kUser, "second");
  CloseRange(token);  // must not touch the unmapped chunk
  EXPECT_EQ(second.CloseAndBuild().ranges().size(), 1u);
}

TEST(EventBufferTest, TakesTheEndThatAnotherThreadDelivers) {
  const int outer = 0, async = 0;
  RecordedWindow window;
  StartOp(&outer, "outer");
  StartOp(&async, "async");
  usleep(2000);
  std::thread([&] { EndOp(&async); }).join();
  usleep(2000);
  EndOp(&outer);
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ops().size(), 2u);
  const Op& op = OpNamed(trace, "async");
  EXPECT_GE(op.end_ns - op.begin_ns, 2000000);
  EXPECT_GE(OpNamed(trace, "outer").end_ns - op.end_ns, 2000000);
}

TEST(EventBufferTest, CutsAnAsyncOperatorWhereTheNextOneWouldCrossIt) {
  const int async = 0, next = 0;
  RecordedWindow window;
  StartOp(&async, "async");
  usleep(1000);
  StartOp(&next, "next");
  usleep(1000);
  std::thread([&] { EndOp(&async); }).join();
  usleep(1000);
  EndOp(&next);  // matches as the innermost and by its key
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ops().size(), 2u);
  EXPECT_EQ(OpNamed(trace, "async").end_ns, OpNamed(trace, "next").begin_ns);
  EXPECT_EQ(OpNamed(trace, "next").parent, kNone);
}

TEST(EventBufferTest, KeepsWhatAThreadRecordedBeforeItExited) {
  RecordedWindow window;
  std::thread([] {
    pthread_setname_np(pthread_self(), "short-lived");
    CloseRange(OpenRange(RangeKind::kUser, "there"));
  }).join();
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ranges().size(), 1u);
  const Thread& thread = trace.threads()[trace.ranges()[0].thread];
  EXPECT_NE(thread.tid, gettid());
  EXPECT_EQ(trace.name(thread.name), "short-lived");
}

TEST(EventBufferTest, ForgetsAThreadThatExitedBetweenWindows) {
  for (int i = 0; i < 3; ++i) {
    RecordedWindow window;
    std::thread thread([] { CloseRange(OpenRange(RangeKind::kUser, "r")); });
    thread.join();
    const Trace trace = window.CloseAndBuild();
    EXPECT_EQ(trace.threads().size(), 1u);
  }
}

TEST(EventBufferTest, DropsTheNewestEventsWhenFullAndCountsThem) {
  constexpr int kRanges = 10000;
  RecordedWindow window(int64_t{64} << 10);  // one chunk
  for (int i = 0; i < kRanges; ++i) {
    CloseRange(OpenRange(RangeKind::kUser, std::to_string(i)));
  }
  const Trace trace = window.CloseAndBuild();
  const auto kept = static_cast<int64_t>(trace.ranges().size());
  EXPECT_GT(kept, 500);
  EXPECT_LT(kept, 2048);
  for (int64_t i = 0; i < kept; ++i) {  // the oldest events are kept in order
    ASSERT_EQ(trace.name(trace.ranges()[i].name), std::to_string(i));
  }
  const Loss* loss = FindLoss(trace, "buffer-full");
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->count, kRanges - kept);
  EXPECT_EQ(loss->severity, Severity::kError);
  EXPECT_NE(loss->detail.find("max_buffer_bytes"), std::string::npos);
}

TEST(EventBufferTest, KeepsNestingRightWhenTheInnerOperatorsWereDropped) {
  const int outer = 0;
  RecordedWindow window(int64_t{64} << 10);
  StartOp(&outer, "outer");
  const int inner = 0;
  bool dropped = false;
  for (int i = 0; i < 4000; ++i) {
    dropped |= !StartOp(&inner, "inner");
    EndOp(&inner);
  }
  EndOp(&outer);
  EXPECT_TRUE(dropped);
  const Trace trace = window.CloseAndBuild();
  const Op& op = OpNamed(trace, "outer");
  EXPECT_EQ(op.parent, kNone);
  EXPECT_GE(op.end_ns, trace.ops().back().end_ns);
}

TEST(EventBufferTest, RecordsAgainAfterAFullWindow) {
  {
    RecordedWindow window(int64_t{64} << 10);
    for (int i = 0; i < 5000; ++i) OpenRange(RangeKind::kUser, "x");
    window.Close();
  }
  RecordedWindow window;
  CloseRange(OpenRange(RangeKind::kUser, "again"));
  const Trace trace = window.CloseAndBuild();
  EXPECT_EQ(trace.ranges().size(), 1u);
  EXPECT_TRUE(trace.losses().empty());
}

TEST(EventBufferTest, CutsALongNameBetweenCharactersAndCountsIt) {
  std::string name(kMaxNameBytes - 1, 'a');
  name += "\xc3\xa9 and more";  // é is the first character that does not fit
  RecordedWindow window;
  CloseRange(OpenRange(RangeKind::kUser, name));
  CloseRange(OpenRange(RangeKind::kUser, std::string(kMaxNameBytes, 'b')));
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ranges().size(), 2u);
  EXPECT_EQ(trace.name(trace.ranges()[0].name),
            std::string(kMaxNameBytes - 1, 'a'));
  EXPECT_EQ(trace.name(trace.ranges()[1].name),
            std::string(kMaxNameBytes, 'b'));
  const Loss* loss = FindLoss(trace, "text-cut");
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->count, 1);
}

TEST(EventBufferTest, FillsManyChunksWithoutLosingOrder) {
  RecordedWindow window;
  for (int i = 0; i < 20000; ++i) {
    CloseRange(OpenRange(RangeKind::kUser, std::to_string(i)));
  }
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ranges().size(), 20000u);
  for (int i = 0; i < 20000; ++i) {
    ASSERT_EQ(trace.name(trace.ranges()[i].name), std::to_string(i));
  }
}

TEST(EventBufferTest, FollowsNestingDeeperThanItsFirstRoom) {
  std::vector<int> keys(1000);
  RecordedWindow window;
  for (int& key : keys) StartOp(&key, "op");
  for (size_t i = keys.size(); i-- > 0;) EndOp(&keys[i]);
  const Trace trace = window.CloseAndBuild();
  ASSERT_EQ(trace.ops().size(), keys.size());
  for (size_t i = 1; i < keys.size(); ++i) {
    ASSERT_EQ(trace.ops()[i].parent, i - 1);
  }
}

}  // namespace
}  // namespace stepscope::event_buffer_test
