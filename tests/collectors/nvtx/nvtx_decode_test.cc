#include "nvtx_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "nvtx_slots.h"
#include "nvtx_window.h"

namespace stepscope::nvtx_decode_test {
namespace {

// One thread's slots, made by hand. Ticks are ns since the epoch.
class Slots {
 public:
  // Writes a record and returns the index of its first slot.
  size_t Put(NvtxEvent event, Ticks at, std::string_view text = "",
             uint64_t domain = 0) {
    const size_t first = slots_.size();
    slots_.push_back(
        {{at, domain, 0, PackNvtx(event, NvtxPayload::kNone, 0, text.size())}});
    slots_.resize(first + 1 + SlotsForBytes(text.size()));
    if (!text.empty()) {
      std::memcpy(slots_.data() + first + 1, text.data(), text.size());
    }
    return first;
  }
  Slot& operator[](size_t i) { return slots_[i]; }
  std::span<const Slot> all() const { return slots_; }

 private:
  std::vector<Slot> slots_;
};

struct Decoded {
  Trace trace;
  NvtxDecodeResult result;
};

Decoded Decode(const std::vector<const Slots*>& threads, Ticks closed,
               const NvtxNameTable& names = {}) {
  SlotLog log{.pid = 1, .closed = closed, .threads = {}};
  int64_t tid = 10;
  for (const Slots* slots : threads) {
    log.threads.push_back(
        {.tid = tid++, .name = "", .chunks = {slots->all()}, .open = {}});
  }
  const ClockReading begin{.ticks = 0};
  const ClockReading end{
      .ticks = 1000000, .monotonic_ns = 1000000, .epoch_ns = 1000000};
  TraceBuilder builder;
  Decoded decoded;
  decoded.result = DecodeNvtx(log, ClockMap(begin, end), names, builder);
  decoded.trace = builder.Build();
  return decoded;
}

TEST(NvtxDecodeTest, EndsWhatNobodyEndedWhenTheWindowClosed) {
  Slots slots;
  slots.Put(NvtxEvent::kPush, 100, "pushed");
  slots.Put(NvtxEvent::kStart, 200, "started");
  const Decoded decoded = Decode({&slots}, 900);
  EXPECT_EQ(RangeNamed(decoded.trace, "pushed").begin_ns, 100);
  EXPECT_EQ(RangeNamed(decoded.trace, "pushed").end_ns, 900);
  EXPECT_EQ(RangeNamed(decoded.trace, "started").end_ns, 900);
  EXPECT_EQ(decoded.result.unfinished, 2);
}

TEST(NvtxDecodeTest, TakesTheEarliestEndOfAnyThread) {
  Slots a;
  const size_t start = a.Put(NvtxEvent::kStart, 100, "range");
  Slots b;
  Slots c;
  const auto id = reinterpret_cast<uint64_t>(&a[start]);
  b.Put(NvtxEvent::kEnd, 300, "", id);
  c.Put(NvtxEvent::kEnd, 200, "", id);
  EXPECT_EQ(RangeNamed(Decode({&a, &b, &c}, 900).trace, "range").end_ns, 200);
  EXPECT_EQ(RangeNamed(Decode({&b, &c, &a}, 900).trace, "range").end_ns, 200);
}

TEST(NvtxDecodeTest, ClocksOfTwoCoresMayDisagreeByAFewTicks) {
  Slots slots;
  slots.Put(NvtxEvent::kPush, 100, "range");
  slots.Put(NvtxEvent::kPop, 95);
  const Range range = RangeNamed(Decode({&slots}, 900).trace, "range");
  EXPECT_EQ(range.begin_ns, 100);
  EXPECT_EQ(range.end_ns, 100);
}

TEST(NvtxDecodeTest, RangesThatTouchShareARow) {
  Slots slots;
  slots.Put(NvtxEvent::kPush, 100, "first");
  slots.Put(NvtxEvent::kPop, 200);
  slots.Put(NvtxEvent::kPush, 200, "second");
  slots.Put(NvtxEvent::kPop, 300);
  const Trace trace = Decode({&slots}, 900).trace;
  EXPECT_EQ(RangeNamed(trace, "first").thread,
            RangeNamed(trace, "second").thread);
}

TEST(NvtxDecodeTest, ALaneHoldsWhatFitsBeforeAnotherIsOpened) {
  Slots starter;
  Slots ender;
  // Three ranges that cross threads: two overlap partly, and one follows both.
  const std::pair<Ticks, Ticks> spans[] = {{100, 300}, {200, 400}, {500, 600}};
  std::vector<size_t> starts;
  for (const auto& span : spans) {
    starts.push_back(
        starter.Put(NvtxEvent::kStart, span.first, std::to_string(span.first)));
  }
  for (size_t i = 0; i < 3; ++i) {
    ender.Put(NvtxEvent::kEnd, spans[i].second, "",
              reinterpret_cast<uint64_t>(&starter[starts[i]]));
  }
  const Trace trace = Decode({&starter, &ender}, 900).trace;
  const auto tid = [&](const char* name) {
    return trace.threads()[RangeNamed(trace, name).thread].tid;
  };
  EXPECT_EQ(tid("100"), kNvtxFirstLaneTid);
  EXPECT_EQ(tid("200"), kNvtxFirstLaneTid + 1);
  EXPECT_EQ(tid("500"), kNvtxFirstLaneTid);
}

TEST(NvtxDecodeTest, NamesStreamsWithAndWithoutARow) {
  TraceBuilder builder;
  builder.Add(Stream{.id = 7, .context = 1, .device = 0, .priority = -1});
  const SlotLog log;
  NvtxNameTable names;
  names.streams = {{.context = 1, .stream = 7, .name = "copies"},
                   {.context = 1, .stream = 9, .name = "only named"}};
  const ClockReading end{.ticks = 1, .monotonic_ns = 1, .epoch_ns = 1};
  DecodeNvtx(log, ClockMap(ClockReading(), end), names, builder);
  const Trace trace = builder.Build();
  ASSERT_EQ(trace.streams().size(), 2u);
  EXPECT_EQ(trace.streams()[0].priority, -1);
  EXPECT_EQ(NameOf(trace, trace.streams()[0].name), "copies");
  EXPECT_EQ(trace.streams()[1].id, 9);
  EXPECT_EQ(NameOf(trace, trace.streams()[1].name), "only named");
}

TEST(NvtxDecodeTest, SaysWhichRecordsMakeNoSense) {
  Slots slots;
  const size_t bad_event = slots.Put(NvtxEvent::kMark, 100);
  slots[bad_event].word[3] |= 7 << 8;
  const size_t short_payload = slots.Put(NvtxEvent::kMark, 100, "abc");
  slots[short_payload].word[3] |= 1 << 11;
  const size_t bad_payload = slots.Put(NvtxEvent::kMark, 100, "12345678name");
  slots[bad_payload].word[3] |= 15 << 11;
  const size_t bad_string = slots.Put(NvtxEvent::kMark, 100);
  slots[bad_string].word[2] = 0x1234;
  const Decoded decoded = Decode({&slots}, 900);
  EXPECT_EQ(decoded.result.bad_records, 3);
  EXPECT_THAT(RangeNames(decoded.trace),
              testing::UnorderedElementsAre("NVTX range without a name", "name",
                                            "NVTX range without a name"));
}

TEST(NvtxDecodeTest, SurvivesAnyBytes) {
  std::mt19937_64 random(20261121);
  int64_t rows = 0;
  for (int round = 0; round < 3000; ++round) {
    Slots slots;
    for (int i = 0; i < 40; ++i) {
      const size_t at =
          slots.Put(static_cast<NvtxEvent>(random() % 8), random() % 1000,
                    std::string(random() % 70, 'x'), random() % 3);
      // Damages some records: any bit of any word.
      if (random() % 4 == 0) slots[at].word[random() % 4] ^= random();
    }
    const Decoded decoded = Decode({&slots}, 900);
    for (const Range& range : decoded.trace.ranges()) {
      ASSERT_LE(range.begin_ns, range.end_ns);
      ++rows;
    }
  }
  EXPECT_GT(rows, 1000);
}

}  // namespace
}  // namespace stepscope::nvtx_decode_test
