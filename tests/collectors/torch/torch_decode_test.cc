#include "torch_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "range_decode.h"
#include "torch_input_words.h"
#include "torch_slots.h"

namespace stepscope::torch_decode_test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// One tick is one nanosecond, and tick 0 is the epoch.
ClockMap PlainClock() {
  return ClockMap({}, {.ticks = 1000, .monotonic_ns = 1000, .epoch_ns = 1000});
}

// Writes records as a hook does.
class SlotWriter {
 public:
  SlotWriter& Op(uint64_t begin, uint64_t end, const char* name,
                 int64_t sequence = -1) {
    slots_.push_back({{begin, end, reinterpret_cast<uint64_t>(name),
                       PackTail(kOpSlot, sequence)}});
    return *this;
  }
  SlotWriter& Text(SlotTag tag, uint64_t begin, uint64_t end, std::string name,
                   std::string detail, uint32_t about, int64_t sequence) {
    const TextFields fields{
        .name_bytes = static_cast<uint16_t>(name.size()),
        .detail_bytes = static_cast<uint16_t>(detail.size()),
        .about = about};
    slots_.push_back({{begin, end, std::bit_cast<uint64_t>(fields),
                       PackTail(tag, sequence)}});
    const std::string text = name + detail;
    const size_t at = slots_.size();
    slots_.resize(at + SlotsForBytes(text.size()));
    std::memcpy(slots_.data() + at, text.data(), text.size());
    return *this;
  }
  SlotWriter& Words(SlotTag tag, const std::vector<uint64_t>& words) {
    slots_.push_back({{0, 0, words.size(), PackTail(tag, 0)}});
    const size_t at = slots_.size();
    slots_.resize(at + SlotsForWords(words.size()));
    std::memcpy(slots_.data() + at, words.data(), words.size() * 8);
    return *this;
  }
  SlotWriter& Raw(const Slot& slot) {
    slots_.push_back(slot);
    return *this;
  }
  SlotLog Log() const {
    SlotLog log{.pid = 10, .closed = 900};
    log.threads.emplace_back();
    log.threads[0].tid = 11;
    log.threads[0].source_thread = 1;
    log.threads[0].name = "main";
    log.threads[0].chunks.push_back(slots_);
    return log;
  }
  std::vector<Slot> slots_;
};

// Decodes as a Session does: first the collector's records, then the session's
// own.
Trace Decode(const SlotLog& log, TorchDecodeResult* result = nullptr,
             const TorchStacks& stacks = {}) {
  TraceBuilder builder;
  TorchDecodeResult decoded = DecodeTorch(log, PlainClock(), stacks, builder);
  decoded.bad_records += DecodeRanges(log, PlainClock(), builder);
  if (result != nullptr) *result = decoded;
  return builder.Build();
}

TEST(TorchDecodeTest, ReadsEveryKindOfRecord) {
  SlotWriter writer;
  writer.Op(100, 200, "aten::add", 7)
      .Text(kTextOpSlot, 300, 400, "AddBackward0", "",
            PackTextOp(/*is_backward=*/true, 1), 7)
      .Text(kRangeSlot, 90, 500, "layer1", "Conv2d",
            static_cast<uint32_t>(RangeKind::kModule), 0);
  writer.Raw({{150, 0xabc, static_cast<uint64_t>(-64),
               PackTail(kMemorySlot, PackDevice(1, 3))}});
  writer.Raw({{1000, 2000, 0, 0}});
  const Trace trace = Decode(writer.Log());
  ASSERT_THAT(trace.ops(), SizeIs(2));
  EXPECT_EQ(trace.name(trace.ops()[0].name), "aten::add");
  EXPECT_EQ(trace.ops()[0].begin_ns, 100);
  EXPECT_EQ(trace.ops()[0].end_ns, 200);
  EXPECT_EQ(trace.ops()[0].sequence, 7);
  EXPECT_EQ(trace.ops()[1].kind, OpKind::kBackward);
  EXPECT_EQ(trace.ops()[1].forward_thread, 1u);
  EXPECT_EQ(trace.ops()[1].forward, 0u);
  ASSERT_THAT(trace.ranges(), SizeIs(1));
  EXPECT_EQ(trace.name(trace.ranges()[0].detail), "Conv2d");
  ASSERT_THAT(trace.allocations(), SizeIs(1));
  const Allocation& event = trace.allocations()[0];
  EXPECT_EQ(event.bytes, -64);
  EXPECT_EQ(event.device_type, 1);
  EXPECT_EQ(event.device, 3);
  EXPECT_EQ(event.total_allocated_bytes, 1000);
  EXPECT_EQ(event.total_reserved_bytes, 2000);
  EXPECT_EQ(event.op, 0u);
}

TEST(TorchDecodeTest, GivesInputsAndStacksToTheOperatorBeforeThem) {
  SlotWriter writer;
  writer.Op(100, 200, "a")
      .Words(kInputsSlot, {PackTensor(6, 2, kHasStrides), 4, 8, 8, 1,
                           static_cast<uint64_t>(InputTag::kInt), 5})
      .Words(kStackSlot, {1, 2})
      .Op(210, 220, "b");
  TorchStacks stacks;
  stacks.symbolize = [](std::span<const std::vector<uint64_t>> stacks) {
    std::vector<std::vector<std::string>> named;
    for (const auto& stack : stacks) {
      auto& frames = named.emplace_back();
      for (uint64_t at : stack) frames.push_back("f" + std::to_string(at));
    }
    return named;
  };
  const Trace trace = Decode(writer.Log(), nullptr, stacks);
  const Op& op = trace.ops()[0];
  const auto& arguments = trace.op_inputs()[op.inputs].arguments;
  ASSERT_THAT(arguments, SizeIs(2));
  EXPECT_EQ(trace.name(arguments[0].type), "float");
  EXPECT_THAT(arguments[0].dims, ElementsAre(4, 8));
  EXPECT_THAT(arguments[0].strides, ElementsAre(8, 1));
  EXPECT_EQ(trace.name(arguments[1].concrete), "5");
  ASSERT_THAT(trace.stacks()[op.stack].frames, SizeIs(2));
  EXPECT_EQ(trace.name(trace.stacks()[op.stack].frames[1]), "f2");
  EXPECT_EQ(trace.ops()[1].inputs, kNone);
  EXPECT_EQ(trace.ops()[1].stack, kNone);
}

TEST(TorchDecodeTest, ReadsACollective) {
  const std::string text =
      "allreduce"
      "0"
      "default"
      "[0, 1]";
  std::vector<uint64_t> words(kCommsWordCount);
  words[kCommsInElements] = 100;
  words[kCommsOutElements] = 200;
  words[kCommsDtype] = 15;
  words[kCommsGroupSize] = 2;
  words[kCommsSequence] = 9;
  words[kCommsTextBytes] = 9 | 1 << 16 | uint64_t{7} << 32 | uint64_t{6} << 48;
  words.resize(words.size() + (text.size() + 7) / 8);
  std::memcpy(&words[kCommsWordCount], text.data(), text.size());
  SlotWriter writer;
  writer.Text(kTextOpSlot, 100, 300, "record_param_comms", "", 0, -1)
      .Words(kCommsSlot, words);
  const Trace trace = Decode(writer.Log());
  ASSERT_THAT(trace.communications(), SizeIs(1));
  const Communication& row = trace.communications()[0];
  EXPECT_EQ(trace.name(row.name), "allreduce");
  EXPECT_EQ(trace.name(row.group_name), "0");
  EXPECT_EQ(trace.name(row.group_description), "default");
  EXPECT_EQ(trace.name(row.group_ranks), "[0, 1]");
  EXPECT_EQ(trace.name(row.dtype), "c10::BFloat16");
  EXPECT_EQ(row.in_elements, 100);
  EXPECT_EQ(row.out_elements, 200);
  EXPECT_EQ(row.group_size, 2);
  EXPECT_EQ(row.sequence, 9);
  EXPECT_EQ(row.begin_ns, 100);
  EXPECT_EQ(row.end_ns, 300);
}

TEST(TorchDecodeTest, EndsAnUnfinishedOperatorWhenTheWindowCloses) {
  SlotWriter writer;
  writer.Op(100, 0, "open");
  TorchDecodeResult result;
  const Trace trace = Decode(writer.Log(), &result);
  EXPECT_EQ(trace.ops()[0].end_ns, 900);
  EXPECT_EQ(result.unfinished, 1);
}

TEST(TorchDecodeTest, GivesPythonFramesToTheOperatorBeforeThem) {
  TorchStacks stacks;
  stacks.python.frames = {"a.py(1): f", "a.py(9): main"};
  stacks.python.stacks = {{1}, {0, 1}};
  stacks.python.calls.resize(2);
  SlotWriter writer;
  writer.Op(100, 200, "a")
      .Raw({{0, 0, 0, PackTail(kPythonSlot, 1)}})
      .Op(210, 220, "b")
      .Op(230, 240, "c")
      .Raw({{0, 0, 0, PackTail(kPythonSlot, 2)}});  // there is no such sample
  TorchDecodeResult result;
  const Trace trace = Decode(writer.Log(), &result, stacks);
  ASSERT_THAT(trace.ops(), SizeIs(3));
  ASSERT_NE(trace.ops()[0].stack, kNone);
  const Stack& stack = trace.stacks()[trace.ops()[0].stack];
  ASSERT_THAT(stack.frames, SizeIs(2));
  EXPECT_EQ(trace.name(stack.frames[0]), "a.py(1): f");
  EXPECT_EQ(trace.ops()[1].stack, kNone);
  EXPECT_EQ(trace.ops()[2].stack, kNone);
  EXPECT_EQ(result.bad_records, 1);
}

TEST(TorchDecodeTest, MatchesAForeignEndByKeyAndTime) {
  // The same address was used before, and that use ended.
  const uint64_t key = 0x1000;
  SlotWriter writer;
  writer.Raw({{50, key, 0, PackTail(kForeignEndSlot, 0)}});
  writer.Op(100, 0, "async");
  writer.Raw({{300, key, 0, PackTail(kForeignEndSlot, 0)}});
  SlotLog log = writer.Log();
  log.threads[0].open.emplace_back(&writer.slots_[1],
                                   reinterpret_cast<const void*>(key));
  TorchDecodeResult result;
  const Trace trace = Decode(log, &result);
  EXPECT_EQ(trace.ops()[0].end_ns, 300);
  EXPECT_EQ(result.ended_elsewhere, 1);
}

TEST(TorchDecodeTest, CountsBytesThatMakeNoSenseAndKeepsTheRest) {
  SlotWriter writer;
  writer.Op(100, 200, "good").Raw({{1, 2, 3, 200}}).Op(300, 400, "unreachable");
  TorchDecodeResult result;
  const Trace trace = Decode(writer.Log(), &result);
  EXPECT_THAT(trace.ops(), SizeIs(1));
  EXPECT_EQ(result.bad_records, 1);
}

TEST(TorchDecodeTest, SurvivesAnyBytesOfRecordsWithoutPointers) {
  constexpr SlotTag kTags[] = {
      kTextOpSlot, kMemorySlot, kHostMemorySlot, kInputsSlot,  kStackSlot,
      kCommsSlot,  kRangeSlot,  kForeignEndSlot, kUnendedSlot, kPythonSlot};
  std::mt19937_64 random(1);
  for (int run = 0; run < 2000; ++run) {
    SlotWriter writer;
    for (int i = 0; i < 20; ++i) {
      Slot slot{{random(), random(), random() % 64, random()}};
      // Any tag except kOpSlot, whose name is a pointer. Most tags are valid.
      uint64_t tag = random() % 8 == 0 ? slot.word[3] & 0xff
                                       : kTags[random() % std::size(kTags)];
      if (tag == kOpSlot) tag = kTextOpSlot;
      slot.word[3] = (slot.word[3] & ~uint64_t{0xff}) | tag;
      writer.Raw(slot);
    }
    SlotLog log = writer.Log();
    // An operator's text may be random bytes; the builder accepts any text.
    Decode(log);
  }
}

TEST(InputDecodeTest, SaysWhenWordsAreMissingAndKeepsWhatCameBefore) {
  const std::vector<uint64_t> whole = {
      PackList(InputTag::kTensorList, InputTag::kTensor, 2),
      PackTensor(6, 1, kHasStrides),
      4,
      1,
      PackTensor(6, 1, 0),
      4,
      PackList(InputTag::kScalarList, InputTag::kInt, 2),
      1,
      2};
  for (size_t size = 0; size <= whole.size(); ++size) {
    TraceBuilder builder;
    OpInputs inputs;
    const bool is_whole =
        DecodeInputs(std::span(whole).first(size), builder, inputs);
    EXPECT_EQ(is_whole, size == 0 || size == 6 || size == whole.size()) << size;
  }
}

TEST(TorchDecodeTest, ReadsMemoryOfTheHostFromOneSlot) {
  SlotWriter writer;
  writer.Raw({{80, 0xbeef, static_cast<uint64_t>(-64),
               PackTail(kHostMemorySlot, int64_t{5} << 40)}});
  writer.Raw({{90, 0xbeef, 64, PackTail(kMemorySlot, PackDevice(1, 0))}});
  writer.Raw({{1000, 2000, 0, 0}});
  const Trace trace = Decode(writer.Log());
  ASSERT_THAT(trace.allocations(), SizeIs(2));
  const Allocation& host = trace.allocations()[0];
  EXPECT_EQ(host.time_ns, 80);
  EXPECT_EQ(host.address, 0xbeefu);
  EXPECT_EQ(host.bytes, -64);
  EXPECT_EQ(host.total_allocated_bytes, int64_t{5} << 40);
  EXPECT_EQ(host.total_reserved_bytes, 0);
  EXPECT_EQ(host.device_type, 0);
  EXPECT_EQ(host.device, -1);
  EXPECT_EQ(trace.allocations()[1].device_type, 1);
  EXPECT_EQ(trace.allocations()[1].total_reserved_bytes, 2000);
}

}  // namespace
}  // namespace stepscope::torch_decode_test
