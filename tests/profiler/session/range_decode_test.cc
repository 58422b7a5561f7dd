#include "range_decode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace stepscope::range_decode_test {
namespace {

// One tick is one nanosecond, and tick 0 is the epoch.
ClockMap PlainClock() {
  return ClockMap({}, {.ticks = 1000, .monotonic_ns = 1000, .epoch_ns = 1000});
}

void PutRange(std::vector<Slot>& slots, uint64_t begin, uint64_t end,
              const std::string& name, const std::string& detail,
              uint32_t about) {
  const TextFields fields{.name_bytes = static_cast<uint16_t>(name.size()),
                          .detail_bytes = static_cast<uint16_t>(detail.size()),
                          .about = about};
  slots.push_back(
      {{begin, end, std::bit_cast<uint64_t>(fields), PackTail(kRangeSlot, 0)}});
  const std::string text = name + detail;
  const size_t at = slots.size();
  slots.resize(at + SlotsForBytes(text.size()));
  std::memcpy(slots.data() + at, text.data(), text.size());
}

SlotLog LogOf(const std::vector<Slot>& slots) {
  SlotLog log{.pid = 10, .closed = 900, .threads = {}};
  log.threads.push_back(
      {.tid = 11, .name = "main", .chunks = {slots}, .open = {}});
  return log;
}

TEST(RangeDecodeTest, ReadsItsOwnAmongRecordsOfAnySource) {
  std::vector<Slot> slots;
  PutRange(slots, 100, 200, "layer1", "Conv2d",
           static_cast<uint32_t>(RangeKind::kModule));
  // A record of another source, of which the session knows only the length.
  const SlotTag other = MakeSlotTag(3, 7, RecordLength::kTwoSlots);
  slots.push_back({{1, 2, 3, PackTail(other, -1)}});
  slots.push_back({{100, 200, 0, PackTail(kRangeSlot, 0)}});
  PutRange(slots, 300, 0, "open", "", static_cast<uint32_t>(RangeKind::kUser));
  TraceBuilder builder;
  EXPECT_EQ(DecodeRanges(LogOf(slots), PlainClock(), builder), 0);
  const Trace trace = builder.Build();
  ASSERT_EQ(trace.ranges().size(), 2u);
  EXPECT_EQ(trace.name(trace.ranges()[0].name), "layer1");
  EXPECT_EQ(trace.name(trace.ranges()[0].detail), "Conv2d");
  EXPECT_EQ(trace.ranges()[0].kind, RangeKind::kModule);
  EXPECT_EQ(trace.ranges()[1].end_ns, 900);  // when the window closed
}

TEST(RangeDecodeTest, ClassifiesScopesThatTheUserNamed) {
  std::vector<Slot> slots;
  PutRange(slots, 100, 200, "ProfilerStep#12", "", kClassifyLater);
  PutRange(slots, 110, 120, "Optimizer.step#SGD.step", "", kClassifyLater);
  TraceBuilder builder;
  DecodeRanges(LogOf(slots), PlainClock(), builder);
  const Trace trace = builder.Build();
  ASSERT_EQ(trace.steps().size(), 1u);
  EXPECT_EQ(trace.steps()[0].number, 12);
  ASSERT_EQ(trace.ranges().size(), 1u);
  EXPECT_EQ(trace.ranges()[0].kind, RangeKind::kOptimizer);
}

// A program with a torch.profiler of its own marks each step, too.
TEST(RangeDecodeTest, LeavesOutMarksOfOthersBesideOwnSteps) {
  std::vector<Slot> slots;
  PutRange(slots, 100, 200, "ProfilerStep#12", "", kClassifyLater);
  TraceBuilder builder;
  builder.Add(Step{.begin_ns = 90, .end_ns = 210, .number = 3, .thread = 0});
  DecodeRanges(LogOf(slots), PlainClock(), builder);
  const Trace trace = builder.Build();
  ASSERT_EQ(trace.steps().size(), 1u);
  EXPECT_EQ(trace.steps()[0].number, 3);
  EXPECT_TRUE(trace.ranges().empty());
}

TEST(RangeDecodeTest, NamesThreadsThatNobodyNamedBetter) {
  const std::vector<Slot> none;
  TraceBuilder builder;
  DecodeRanges(LogOf(none), PlainClock(), builder);
  EXPECT_EQ(builder.Build().name(1), "main");
  TraceBuilder named;
  const RowId row = named.ThreadRow(10, 11);
  named.thread(row).name = named.Intern("the program's own name");
  DecodeRanges(LogOf(none), PlainClock(), named);
  const Trace trace = named.Build();
  EXPECT_EQ(trace.name(trace.threads()[0].name), "the program's own name");
}

TEST(RangeDecodeTest, CountsRecordsOfAnySourceThatMakeNoSense) {
  std::vector<Slot> slots;
  slots.push_back({{1, 2, kMaxRecordWords + 1,
                    PackTail(MakeSlotTag(2, 1, RecordLength::kWords), 0)}});
  TraceBuilder builder;
  EXPECT_EQ(DecodeRanges(LogOf(slots), PlainClock(), builder), 1);
}

}  // namespace
}  // namespace stepscope::range_decode_test
