// Tests that files that are not traces are refused, with a message that says
// what they look like.
#include "exporters/chrome/chrome_text.h"

namespace stepscope::not_traces_test {
namespace {

class NotTracesTest : public ChromeTextTest {
 protected:
  // Expects InvalidArgument with the path and `words` in its message.
  void ExpectRefused(std::string_view bytes, const std::string& words) {
    absl::StatusOr<Trace> trace = TryRead(bytes, "thing.json");
    ASSERT_FALSE(trace.ok()) << words;
    const std::string message(trace.status().message());
    EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument)
        << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("thing.json"), std::string::npos) << message;
  }
};

TEST_F(NotTracesTest, SaysWhatAFileLooksLike) {
  ExpectRefused("", "an empty file");
  ExpectRefused(" \n ", "blanks");
  ExpectRefused("<!DOCTYPE html><html></html>", "HTML");
  ExpectRefused(std::string("\x80\x04\x95\x10", 4), "pickle");
  ExpectRefused("PK\x03\x04 archive/data.pkl", "zip");
  ExpectRefused(std::string("\x01\x02\x00\x03", 4), "binary");
  ExpectRefused("step,time\n1,2\n", "text that is not JSON");
  ExpectRefused("SQLite format 3\0", "SQLite");
}

TEST_F(NotTracesTest, SaysWhatJsonItIs) {
  ExpectRefused(R"({"a": 1, "b": [1, 2]})", "traceEvents");
  ExpectRefused("{}", "traceEvents");
  ExpectRefused(R"({"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1}]})",
                "execution trace");
  ExpectRefused(
      R"({"$schema": "https://www.speedscope.app/file-format-schema.json",
          "profiles": []})",
      "speedscope");
}

TEST_F(NotTracesTest, NamesTracesOfOtherPrograms) {
  ExpectRefused("[[1, 2, 3], [[4, 5], [6, 7]]]", "memory timeline");
  ExpectRefused("[]", "memory timeline");
  ExpectRefused(R"({"rocprofiler-sdk-tool": [{"metadata": {}}]})", "rocprof");
  ExpectRefused(
      R"({"traceEvents": [{"ph": "X", "name": "k", "pid": 2, "tid": 1,
          "ts": "1", "dur": "2", "args": {"BeginNs": "1000"}}]})",
      "rocprof");
  ExpectRefused(
      R"({"traceEvents": [{"ph": "X", "cat": "v8", "name": "k", "pid": 2,
          "tid": 1, "ts": 1, "dur": 2}]})",
      "category \"v8\"");
  ExpectRefused(
      R"({"traceEvents": [{"ph": "B", "name": "k", "pid": 2, "tid": 1,
          "ts": 1}, {"ph": "E", "pid": 2, "tid": 1, "ts": 2}]})",
      "separate begins and ends");
}

TEST_F(NotTracesTest, ForeignEventsBesideKnownOnesAreOnlyCounted) {
  const Trace trace = Read(
      R"({"traceEvents": [{"ph": "X", "cat": "v8", "name": "k", "pid": 2,
          "tid": 1, "ts": 1, "dur": 2},)" +
      XEvent("cpu_op", "one", "\"ts\": 1, \"dur\": 1") + "]}");
  EXPECT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(LossCount(trace, "unknown-events"), 1);
}

TEST_F(NotTracesTest, LooksInsideGzip) {
  ExpectRefused(Gzip("<html>"), "HTML");
  ExpectRefused(Gzip(""), "an empty file");
}

TEST_F(NotTracesTest, KeyInAnotherObjectIsNoEvents) {
  ExpectRefused(R"({"inner": {"traceEvents": [{"ph": "X"}]}})", "traceEvents");
}

TEST_F(NotTracesTest, DirectoryIsRefused) {
  absl::StatusOr<Trace> trace = ReadTrace(folder_.path().string());
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(trace.status().message().find("directory"),
            absl::string_view::npos);
}

TEST_F(NotTracesTest, MissingFileIsNotFound) {
  absl::StatusOr<Trace> trace = ReadTrace(folder_.At("none.json"));
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stepscope::not_traces_test
