#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>
#include <stepscope/slot.h>

#include <string>

#include "nvtx_window.h"
#include "other_library.h"

namespace stepscope::nvtx_collector_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

nvtxEventAttributes_t Attributes(const char* message) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = message;
  return attributes;
}

TEST(NvtxCollectorTest, RecordsPushedRangesAsTheyNest) {
  NvtxWindow window;
  nvtxRangePushA("outer");
  nvtxRangePushA("inner");
  nvtxRangePop();
  nvtxRangePop();
  const Trace trace = window.Take();
  EXPECT_THAT(RangeNames(trace), ElementsAre("outer", "inner"));
  const Range outer = RangeNamed(trace, "outer");
  const Range inner = RangeNamed(trace, "inner");
  EXPECT_LT(outer.begin_ns, inner.begin_ns);
  EXPECT_LT(inner.begin_ns, inner.end_ns);
  EXPECT_LT(inner.end_ns, outer.end_ns);
  EXPECT_EQ(outer.thread, inner.thread);
  EXPECT_EQ(trace.threads()[outer.thread].tid, gettid());
  EXPECT_THAT(trace.losses(), IsEmpty());
}

TEST(NvtxCollectorTest, AnswersAsIfThereWereNoTool) {
  EXPECT_EQ(nvtxRangePushA("off"), NVTX_NO_PUSH_POP_TRACKING);
  EXPECT_EQ(nvtxRangePop(), NVTX_NO_PUSH_POP_TRACKING);
  EXPECT_EQ(nvtxRangeStartA("off"), 0u);
  NvtxWindow window;
  EXPECT_EQ(nvtxRangePushA("on"), NVTX_NO_PUSH_POP_TRACKING);
  EXPECT_EQ(nvtxRangePop(), NVTX_NO_PUSH_POP_TRACKING);
}

TEST(NvtxCollectorTest, RecordsNothingOutsideItsWindow) {
  nvtxRangePushA("before");
  nvtxRangePop();
  NvtxWindow window;
  nvtxMarkA("inside");
  const Trace trace = window.Take();
  nvtxRangePushA("after");
  nvtxRangePop();
  EXPECT_THAT(RangeNames(trace), ElementsAre("inside"));
  NvtxWindow second;
  EXPECT_THAT(RangeNames(second.Take()), IsEmpty());
}

TEST(NvtxCollectorTest, MarksAreRangesOfNoLength) {
  NvtxWindow window;
  nvtxRangePushA("around");
  nvtxMarkA("here");
  nvtxRangePop();
  const Trace trace = window.Take();
  const Range mark = RangeNamed(trace, "here");
  EXPECT_EQ(mark.begin_ns, mark.end_ns);
  EXPECT_GT(mark.begin_ns, RangeNamed(trace, "around").begin_ns);
  EXPECT_LT(mark.begin_ns, RangeNamed(trace, "around").end_ns);
}

TEST(NvtxCollectorTest, KeepsThePushesOfDomainsApart) {
  const nvtxDomainHandle_t io = nvtxDomainCreateA("io");
  const auto read = Attributes("read");
  NvtxWindow window;
  nvtxRangePushA("default");
  nvtxDomainRangePushEx(io, &read);
  nvtxRangePop();  // pops the default domain, pushed first
  nvtxMarkA("between");
  nvtxDomainRangePop(io);
  const Trace trace = window.Take();
  const Range between = RangeNamed(trace, "between");
  EXPECT_LT(RangeNamed(trace, "default").end_ns, between.begin_ns);
  EXPECT_GT(RangeNamed(trace, "read").end_ns, between.begin_ns);
  EXPECT_EQ(DetailOf(trace, "default"), "");
  // This range ends after the range in which it started, so it has its own row.
  EXPECT_EQ(DetailOf(trace, "read"),
            "domain=io, thread=" + std::to_string(gettid()));
  EXPECT_NE(RangeNamed(trace, "read").thread,
            RangeNamed(trace, "default").thread);
}

TEST(NvtxCollectorTest, ADomainMadeTwiceIsOneDomain) {
  EXPECT_EQ(nvtxDomainCreateA("twice"), nvtxDomainCreateW(L"twice"));
  EXPECT_NE(nvtxDomainCreateA("twice"), nvtxDomainCreateA("once"));
  nvtxDomainDestroy(nvtxDomainCreateA("twice"));
  const auto still = Attributes("still");
  NvtxWindow window;
  nvtxDomainMarkEx(nvtxDomainCreateA("twice"), &still);
  EXPECT_EQ(DetailOf(window.Take(), "still"), "domain=twice");
}

TEST(NvtxCollectorTest, TakesTheTextOfRegisteredStrings) {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("lib");
  auto attributes = Attributes(nullptr);
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered =
      nvtxDomainRegisterStringW(domain, L"r\u00e9gistr\u00e9");
  ASSERT_NE(attributes.message.registered, nullptr);
  EXPECT_EQ(attributes.message.registered,
            nvtxDomainRegisterStringA(domain, "r\u00e9gistr\u00e9"));
  NvtxWindow window;
  nvtxDomainRangePushEx(domain, &attributes);
  nvtxDomainRangePop(domain);
  attributes.message.registered = nullptr;
  nvtxDomainMarkEx(domain, &attributes);
  const Trace trace = window.Take();
  EXPECT_THAT(RangeNames(trace),
              ElementsAre("r\u00e9gistr\u00e9", "NVTX range without a name"));
}

TEST(NvtxCollectorTest, NamesCategoriesEvenWhenToldLate) {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("cats");
  auto attributes = Attributes("cat");
  attributes.category = 7;
  NvtxWindow window;
  nvtxDomainMarkEx(domain, &attributes);
  nvtxDomainNameCategoryA(domain, 7, "felines");
  nvtxNameCategoryA(7, "the default domain's");
  attributes.category = 0xffffffff;
  attributes.message.ascii = "number";
  nvtxDomainMarkEx(domain, &attributes);
  attributes.category = 7;
  attributes.messageType = NVTX_MESSAGE_UNKNOWN;
  nvtxDomainMarkEx(domain, &attributes);
  const Trace trace = window.Take();
  EXPECT_EQ(DetailOf(trace, "cat"), "domain=cats, category=felines");
  EXPECT_EQ(DetailOf(trace, "number"), "domain=cats, category=4294967295");
  EXPECT_EQ(DetailOf(trace, "felines"), "domain=cats, category=felines");
}

TEST(NvtxCollectorTest, ShowsPayloadsOfEveryType) {
  NvtxWindow window;
  const auto mark = [](const char* name, int32_t type, auto set) {
    auto attributes = Attributes(name);
    attributes.payloadType = type;
    set(attributes.payload);
    nvtxMarkEx(&attributes);
  };
  mark("u64", NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
       [](auto& p) { p.ullValue = ~uint64_t{0}; });
  mark("i64", NVTX_PAYLOAD_TYPE_INT64, [](auto& p) { p.llValue = -5; });
  mark("double", NVTX_PAYLOAD_TYPE_DOUBLE, [](auto& p) { p.dValue = 0.1; });
  mark("u32", NVTX_PAYLOAD_TYPE_UNSIGNED_INT32,
       [](auto& p) { p.uiValue = 4000000000u; });
  mark("i32", NVTX_PAYLOAD_TYPE_INT32, [](auto& p) { p.iValue = -7; });
  mark("float", NVTX_PAYLOAD_TYPE_FLOAT, [](auto& p) { p.fValue = 0.1f; });
  mark("none", NVTX_PAYLOAD_UNKNOWN, [](auto& p) { p.ullValue = 9; });
  mark("later version", 77, [](auto& p) { p.ullValue = 9; });
  const Trace trace = window.Take();
  EXPECT_EQ(DetailOf(trace, "u64"), "payload=18446744073709551615");
  EXPECT_EQ(DetailOf(trace, "i64"), "payload=-5");
  EXPECT_EQ(DetailOf(trace, "double"), "payload=0.1");
  EXPECT_EQ(DetailOf(trace, "u32"), "payload=4000000000");
  EXPECT_EQ(DetailOf(trace, "i32"), "payload=-7");
  EXPECT_EQ(DetailOf(trace, "float"), "payload=0.1");
  EXPECT_EQ(DetailOf(trace, "none"), "");
  EXPECT_EQ(DetailOf(trace, "later version"), "");
  EXPECT_THAT(trace.losses(), IsEmpty());
}

TEST(NvtxCollectorTest, SurvivesWhatIsNotThere) {
  NvtxWindow window;
  nvtxRangePushA(nullptr);
  nvtxRangePop();
  nvtxRangePushW(nullptr);
  nvtxRangePop();
  nvtxMarkEx(nullptr);
  nvtxEventAttributes_t short_one = Attributes("short");
  short_one.size = 8;
  nvtxMarkEx(&short_one);
  nvtxDomainRangePushEx(nullptr, nullptr);
  nvtxDomainRangePop(nullptr);
  nvtxRangeEnd(0);
  nvtxNameCategoryA(1, nullptr);
  const Trace trace = window.Take();
  EXPECT_THAT(RangeNames(trace),
              testing::AllOf(testing::SizeIs(5),
                             testing::Each("NVTX range without a name")));
  EXPECT_THAT(trace.losses(), IsEmpty());
}

TEST(NvtxCollectorTest, CutsLongTextsAtWholeCharactersAndSaysSo) {
  const std::string fits(kMaxNameBytes, 'a');
  std::string wide_text(kMaxNameBytes - 1, 'b');
  std::wstring wide(kMaxNameBytes - 1, L'b');
  wide += L'\u00e9';  // two bytes: one byte too many
  wide += std::wstring(100000, L'x');
  NvtxWindow window;
  nvtxMarkA(fits.c_str());
  nvtxMarkA((fits + std::string(1 << 20, 'c')).c_str());
  nvtxMarkW(wide.c_str());
  const Trace trace = window.Take();
  EXPECT_THAT(RangeNames(trace), ElementsAre(fits, fits, wide_text));
  EXPECT_EQ(LossCount(trace, "text-cut"), 2);
}

TEST(NvtxCollectorTest, LeavesOutRangesThatBeganBeforeAndSaysSo) {
  nvtxRangePushA("pushed before");
  const nvtxRangeId_t unrecorded = nvtxRangeStartA("started before");
  NvtxWindow window;
  nvtxRangePushA("whole");
  nvtxRangePop();
  nvtxRangePop();
  nvtxRangeEnd(unrecorded);
  const Trace trace = window.Take();
  EXPECT_THAT(RangeNames(trace), ElementsAre("whole"));
  EXPECT_EQ(LossCount(trace, "nvtx-range-cut"), 1);
}

TEST(NvtxCollectorTest, EndsWhatIsOpenWhenTheWindowCloses) {
  NvtxWindow window;
  nvtxRangePushA("pushed");
  const nvtxRangeId_t id = nvtxRangeStartA("started");
  nvtxMarkA("last");
  const Trace trace = window.Take();
  EXPECT_GT(RangeNamed(trace, "pushed").end_ns,
            RangeNamed(trace, "last").begin_ns);
  EXPECT_EQ(RangeNamed(trace, "started").end_ns,
            RangeNamed(trace, "pushed").end_ns);
  // Its late end must not end a range of the next window.
  NvtxWindow second;
  nvtxRangeStartA("another");
  nvtxRangeEnd(id);
  nvtxMarkA("later");
  const Trace next = second.Take();
  EXPECT_GT(RangeNamed(next, "another").end_ns,
            RangeNamed(next, "later").begin_ns);
  EXPECT_EQ(LossCount(next, "nvtx-range-cut"), 1);
  nvtxRangePop();
}

TEST(NvtxCollectorTest, StartedRangesNeedNotNest) {
  NvtxWindow window;
  const nvtxRangeId_t a = nvtxRangeStartA("a");
  const nvtxRangeId_t b = nvtxRangeStartW(L"b");
  nvtxRangeEnd(a);
  const auto attributes = Attributes("c");
  const nvtxRangeId_t c = nvtxRangeStartEx(&attributes);
  nvtxRangeEnd(b);
  nvtxRangeEnd(c);
  nvtxRangeEnd(c);  // second end: the first one counts
  const Trace trace = window.Take();
  const Range first = RangeNamed(trace, "a");
  const Range second = RangeNamed(trace, "b");
  const Range third = RangeNamed(trace, "c");
  EXPECT_LT(first.begin_ns, second.begin_ns);
  EXPECT_LT(second.begin_ns, first.end_ns);
  EXPECT_LT(first.end_ns, second.end_ns);
  EXPECT_LT(third.begin_ns, second.end_ns);
  // Ranges that partly overlap are never in the same row.
  EXPECT_NE(first.thread, second.thread);
  EXPECT_NE(second.thread, third.thread);
  EXPECT_EQ(NameOf(trace, trace.threads()[second.thread].name),
            "NVTX ranges 1");
}

TEST(NvtxCollectorTest, RangesOfOtherBinariesArriveToo) {
  NvtxWindow window;
  OtherLibraryPush("in the library");
  nvtxRangePushA("in the program");
  nvtxRangePop();
  OtherLibraryPop();
  const Trace trace = window.Take();
  EXPECT_THAT(RangeNames(trace),
              ElementsAre("in the library", "in the program"));
  EXPECT_EQ(LossCount(trace, "nvtx-one-binary"), 0);
}

TEST(NvtxCollectorTest, CountsWhatAFullBufferDrops) {
  NvtxWindow window({.max_buffer_bytes = 64 << 10});
  for (int i = 0; i < 3000; ++i) {
    nvtxRangePushA("pushed");
    nvtxRangePop();
  }
  const Trace trace = window.Take();
  const auto kept = static_cast<int64_t>(trace.ranges().size());
  EXPECT_GT(kept, 600);
  EXPECT_LT(kept, 700);  // 64 KiB hold records of two slots and of one
  const int64_t dropped = LossCount(trace, "buffer-full");
  EXPECT_GE(dropped + 2 * kept, 6000 - 1);
  EXPECT_LE(dropped + 2 * kept, 6000 + 1);
}

}  // namespace
}  // namespace stepscope::nvtx_collector_test
