// Tests odd events: events that cannot be read are counted, and the rest is
// read.
#include "exporters/chrome/chrome_text.h"

namespace stepscope::chrome_events_test {
namespace {

using ChromeEventsTest = ChromeTextTest;

const char* const kGood = R"("ts": 5, "dur": 2)";

TEST_F(ChromeEventsTest, CountsNegativeDurations) {
  const Trace trace =
      Read(KinetoFile(XEvent("cpu_op", "bad", "\"ts\": 1, \"dur\": -3") + "," +
                      XEvent("cpu_op", "good", kGood)));
  ASSERT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(LossCount(trace, "negative-durations"), 1);
}

TEST_F(ChromeEventsTest, CountsTimesThatAreNoNumbers) {
  const Trace trace = Read(
      KinetoFile(XEvent("cpu_op", "a", "\"ts\": NaN, \"dur\": 3") + "," +
                 XEvent("cpu_op", "b", "\"ts\": 1, \"dur\": Infinity") + "," +
                 XEvent("cpu_op", "c", "\"ts\": \"soon\", \"dur\": 1") + "," +
                 XEvent("cpu_op", "d", "\"ts\": 9e18, \"dur\": 1") + "," +
                 XEvent("cpu_op", "e", "\"ts\": 1") + "," +
                 XEvent("cpu_op", "good", kGood)));
  ASSERT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(trace.name(trace.ops()[0].name), "good");
  EXPECT_EQ(LossCount(trace, "unreadable-times"), 4);
  EXPECT_EQ(LossCount(trace, "missing-durations"), 1);
}

TEST_F(ChromeEventsTest, TakesTimesAsText) {
  const Trace trace =
      Read(KinetoFile(XEvent("cpu_op", "a", R"("ts": "1.25", "dur": "0.5")")));
  ASSERT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(trace.ops()[0].begin_ns, 1250);
  EXPECT_EQ(trace.ops()[0].end_ns, 1750);
}

TEST_F(ChromeEventsTest, LeavesNanInAnArgUnknown) {
  const Trace trace = Read(KinetoFile(XEvent(
      "kernel", "k", kGood,
      R"("blocks per SM": Infinity, "warps per SM": NaN, "stream": 7)")));
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.kernels()[0].blocks_per_sm, -1);
  EXPECT_EQ(trace.kernels()[0].warps_per_sm, -1);
  EXPECT_EQ(trace.kernels()[0].stream, 7);
}

TEST_F(ChromeEventsTest, MendsControlCharactersAndBadUtf8) {
  const Trace trace =
      Read(KinetoFile(XEvent("cpu_op", "tab\there", kGood) + "," +
                      XEvent("cpu_op", "bad\xff", kGood) + "," +
                      XEvent("cpu_op", "C:\\Users", kGood) + "," +
                      XEvent("cpu_op", "fine", kGood)));
  ASSERT_EQ(trace.ops().size(), 4u);
  EXPECT_EQ(trace.name(trace.ops()[0].name), "tab\there");
  EXPECT_EQ(trace.name(trace.ops()[1].name), "bad\xef\xbf\xbd");
  EXPECT_EQ(trace.name(trace.ops()[2].name), "C:\\Users");
  EXPECT_EQ(LossCount(trace, "repaired-events"), 2);
}

TEST_F(ChromeEventsTest, LeavesOutOnlyTheEventThatIsNoJson) {
  const Trace trace =
      Read(KinetoFile(XEvent("cpu_op", "one", kGood) +
                      R"(, {"ph": "X" "cat": "cpu_op", "name": : "two"}, )" +
                      XEvent("cpu_op", "three", kGood)));
  ASSERT_EQ(trace.ops().size(), 2u);
  EXPECT_EQ(LossCount(trace, "damaged-events"), 1);
}

TEST_F(ChromeEventsTest, GoesOnBehindAMissingQuote) {
  std::string events = R"({"ph": "X, "cat": "cpu_op", "name": "broken"})";
  for (int i = 0; i < 50; ++i)
    events += ",\n" + XEvent("cpu_op", "good", kGood);
  const Trace trace = Read(KinetoFile(events));
  EXPECT_EQ(trace.ops().size(), 50u);
  EXPECT_EQ(LossCount(trace, "damaged-events"), 1);
}

TEST_F(ChromeEventsTest, GoesOnBehindAMissingBrace) {
  std::string events = R"({"ph": "X", "cat": "cpu_op", "args": {"a": 1})";
  for (int i = 0; i < 50; ++i)
    events += ",\n" + XEvent("cpu_op", "good", kGood);
  const Trace trace = Read(KinetoFile(events));
  EXPECT_EQ(trace.ops().size(), 50u);
  EXPECT_EQ(LossCount(trace, "damaged-events"), 1);
  EXPECT_EQ(LossCount(trace, "truncated-file"), 0);
}

TEST_F(ChromeEventsTest, SurvivesDeepNesting) {
  std::string deep = "\"Input Dims\": ";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  for (int i = 0; i < 100'000; ++i) deep += ']';
  const Trace trace = Read(KinetoFile(
      XEvent("cpu_op", "deep", kGood, deep) + "," +
      XEvent("cpu_op", "deep arg", kGood,
             "\"Input Dims\": [[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]") +
      "," + XEvent("cpu_op", "good", kGood)));
  EXPECT_EQ(trace.name(trace.ops().back().name), "good");
  EXPECT_GE(trace.ops().size(), 2u);
}

TEST_F(ChromeEventsTest, ReadsVeryLongNames) {
  const std::string name(300'000, 'n');
  const Trace trace = Read(KinetoFile(XEvent("cpu_op", name, kGood)));
  ASSERT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(trace.name(trace.ops()[0].name), name);
}

TEST_F(ChromeEventsTest, TakesWhateverTheTypesAre) {
  // No field has the right type; only the name is readable.
  const Trace trace = Read(KinetoFile(
      R"({"ph": "X", "cat": "cpu_op", "name": 5, "pid": [1], "tid": {"a": 1},
          "ts": 1, "dur": 1, "args": [1, 2]},
         {"ph": "X", "cat": null, "name": null, "ts": 1, "dur": 1,
          "args": null},
         {"ph": 7}, {"ph": "X", "cat": "kernel", "ts": 1, "dur": 1, "args":
          {"grid": "x", "stream": "y", "device": {}, "correlation": []}}, 17,
         "text", null, [{"ph": "X"}])"));
  EXPECT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(trace.kernels().size(), 1u);
}

TEST_F(ChromeEventsTest, CountsWhatItDoesNotRead) {
  const Trace trace = Read(KinetoFile(
      XEvent("mtia_thing", "x", kGood) + "," +
      R"({"ph": "B", "cat": "cpu_op", "name": "x", "ts": 1, "pid": 1,
          "tid": 1},)" +
      XEvent("Trace", "PyTorch Profiler (0)", kGood) + "," +
      R"({"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 1},)" +
      XEvent("cpu_op", "good", kGood)));
  EXPECT_EQ(LossCount(trace, "unknown-events"), 1);
  EXPECT_EQ(LossCount(trace, "unpaired-events"), 1);
  EXPECT_EQ(LossCount(trace, "unread-device-rows"), 1);
  EXPECT_EQ(trace.losses().size(), 3u);
}

TEST_F(ChromeEventsTest, ReadsATopLevelArray) {
  const Trace trace = Read("[" + XEvent("cpu_op", "a", kGood) + ",\n" +
                           XEvent("cpu_op", "b", kGood) + "]");
  EXPECT_EQ(trace.ops().size(), 2u);
  EXPECT_TRUE(trace.losses().empty());
}

TEST_F(ChromeEventsTest, ReadsATraceWithoutEvents) {
  const Trace trace = Read(KinetoFile(""));
  EXPECT_TRUE(trace.ops().empty());
  EXPECT_TRUE(trace.losses().empty());
}

TEST_F(ChromeEventsTest, TellsThreadsWithTextNamesApart) {
  const Trace trace = Read(KinetoFile(
      R"({"ph": "X", "cat": "cpu_op", "name": "a", "pid": "p", "tid": "main",
          "ts": 1, "dur": 1},
         {"ph": "X", "cat": "cpu_op", "name": "b", "pid": "p", "tid": "other",
          "ts": 1, "dur": 1},
         {"ph": "X", "cat": "cpu_op", "name": "c", "pid": "p", "tid": "main",
          "ts": 3, "dur": 1})"));
  ASSERT_EQ(trace.threads().size(), 2u);
  EXPECT_EQ(trace.ops()[0].thread, trace.ops()[2].thread);
  EXPECT_NE(trace.ops()[0].thread, trace.ops()[1].thread);
}

}  // namespace
}  // namespace stepscope::chrome_events_test
