// Tests cut and damaged files: the part before the damage is read, and the loss
// is reported.
#include <stepscope/export.h>

#include <algorithm>

#include "exporters/chrome/chrome_text.h"
#include "support/random_trace.h"

namespace stepscope::damaged_files_test {
namespace {

class DamagedFilesTest : public ChromeTextTest {
 protected:
  // Returns a small file of our own with rows of every kind.
  std::string OwnFile() {
    const std::string path = folder_.At("whole.json");
    const Trace trace =
        RandomTrace({.seed = 3, .steps = 1, .ops_per_step = 12});
    EXPECT_TRUE(WriteTrace(trace, {}, Format::kChromeKineto, path).ok());
    return ReadBytes(path);
  }

  static std::string LossDetail(const Trace& trace, std::string_view name) {
    for (const Loss& loss : trace.losses()) {
      if (loss.name == name) return loss.detail;
    }
    return "";
  }

  static size_t Rows(const Trace& trace) {
    return trace.ops().size() + trace.ranges().size() + trace.steps().size() +
           trace.runtime_calls().size() + trace.kernels().size() +
           trace.copies().size() + trace.memsets().size() +
           trace.allocations().size() + trace.python_frames().size();
  }
};

TEST_F(DamagedFilesTest, EveryCutGivesWhatPrecedesItOrAnErrorSayingWhere) {
  const std::string whole = OwnFile();
  const size_t events_at = whole.find("\"traceEvents\"");
  size_t rows_before = 0;
  // A step size without small factors hits every kind of place.
  const size_t step = whole.size() / 150 + 1;
  for (size_t size = 1; size < whole.size() - 3; size += step) {
    absl::StatusOr<Trace> trace = TryRead(whole.substr(0, size));
    if (!trace.ok()) {
      const std::string message(trace.status().message());
      ASSERT_EQ(trace.status().code(), absl::StatusCode::kDataLoss) << message;
      ASSERT_NE(message.find("trace.json"), std::string::npos);
      ASSERT_NE(message.find("byte " + std::to_string(size)), std::string::npos)
          << message;
      ASSERT_EQ(rows_before, 0u);
      continue;
    }
    ASSERT_GT(size, events_at);
    ASSERT_EQ(LossCount(*trace, "truncated-file"), 1);
    ASSERT_EQ(LossCount(*trace, "damaged-events"), 0);
    ASSERT_GE(Rows(*trace), rows_before);
    rows_before = Rows(*trace);
  }
  EXPECT_GT(rows_before, 10u);
}

TEST_F(DamagedFilesTest, CutFileSaysAtWhichByteItsLastEventEnds) {
  const std::string text =
      KinetoFile(XEvent("cpu_op", "one", "\"ts\": 1, \"dur\": 1") + ",\n" +
                 XEvent("cpu_op", "two", "\"ts\": 3, \"dur\": 1"));
  const size_t two = text.find("two");
  const Trace trace = Read(text.substr(0, two + 2));
  ASSERT_EQ(trace.ops().size(), 1u);
  const size_t end_of_one = text.find("}}") + 2;
  EXPECT_NE(LossDetail(trace, "truncated-file")
                .find("byte " + std::to_string(end_of_one)),
            std::string::npos)
      << LossDetail(trace, "truncated-file");
}

TEST_F(DamagedFilesTest, CutGzipGivesWhatPrecedes) {
  std::string events = XEvent("cpu_op", "first", "\"ts\": 1, \"dur\": 1");
  for (int i = 0; i < 20'000; ++i) {
    events +=
        ",\n" + XEvent("cpu_op", "op" + std::to_string(i * 7919 % 20'011),
                       "\"ts\": " + std::to_string(i * 3) + ", \"dur\": 1");
  }
  const std::string gzip = Gzip(KinetoFile(events));
  absl::StatusOr<Trace> half =
      TryRead(gzip.substr(0, gzip.size() / 2), "half.json.gz");
  ASSERT_TRUE(half.ok()) << half.status().message();
  EXPECT_GT(half->ops().size(), 5'000u);
  EXPECT_LT(half->ops().size(), 15'000u);
  EXPECT_EQ(LossCount(*half, "truncated-file"), 1);
  EXPECT_NE(LossDetail(*half, "truncated-file").find("gzip"),
            std::string::npos);

  absl::StatusOr<Trace> start = TryRead(gzip.substr(0, 12), "start.json.gz");
  ASSERT_FALSE(start.ok());
  EXPECT_EQ(start.status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(DamagedFilesTest, FlippedBytesInGzipGiveWhatPrecedes) {
  std::string events = XEvent("cpu_op", "first", "\"ts\": 1, \"dur\": 1");
  for (int i = 0; i < 20'000; ++i) {
    events +=
        ",\n" + XEvent("cpu_op", "op" + std::to_string(i * 7919 % 20'011),
                       "\"ts\": " + std::to_string(i * 3) + ", \"dur\": 1");
  }
  std::string gzip = Gzip(KinetoFile(events));
  for (size_t at = gzip.size() / 2; at < gzip.size() / 2 + 64; ++at)
    gzip[at] = static_cast<char>(gzip[at] ^ 0x5a);
  absl::StatusOr<Trace> trace = TryRead(gzip, "flipped.json.gz");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_GT(trace->ops().size(), 5'000u);
  // Which loss it is depends on whether the damaged bytes still decompress.
  EXPECT_EQ(
      LossCount(*trace, "damaged-file") + LossCount(*trace, "wrong-checksum"),
      1);
  EXPECT_EQ(LossCount(*trace, "truncated-file"), 0);
}

// After a flipped bit, the JSON may still be valid. Only the checksum shows the
// damage.
TEST_F(DamagedFilesTest, AWrongChecksumOfGzipIsNamed) {
  std::string gzip =
      Gzip(KinetoFile(XEvent("cpu_op", "one", "\"ts\": 1, \"dur\": 1")));
  for (size_t from_end : {8u, 2u}) {  // content checksum and length
    std::string damaged = gzip;
    damaged[damaged.size() - from_end] ^= 1;
    absl::StatusOr<Trace> trace = TryRead(damaged, "sum.json.gz");
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    EXPECT_EQ(trace->ops().size(), 1u);
    ASSERT_EQ(trace->losses().size(), 1u);
    EXPECT_EQ(trace->losses()[0].name, "wrong-checksum");
    EXPECT_EQ(trace->losses()[0].severity, Severity::kError);
    EXPECT_NE(trace->losses()[0].detail.find("gzip checksum does not match"),
              std::string::npos)
        << trace->losses()[0].detail;
  }
}

// The JSON may end exactly at the end of a reader's block, before the checksum.
TEST_F(DamagedFilesTest, AWrongChecksumIsFoundBehindAFileOfWholeBlocks) {
  std::string text =
      KinetoFile(XEvent("cpu_op", "one", "\"ts\": 1, \"dur\": 1"));
  constexpr size_t kBlockBytes = size_t{1} << 20;  // JsonEventsReader's
  text.insert(1, kBlockBytes - text.size(), ' ');
  std::string damaged = Gzip(text);
  damaged[damaged.size() - 8] ^= 1;
  absl::StatusOr<Trace> trace = TryRead(damaged, "block.json.gz");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(LossCount(*trace, "wrong-checksum"), 1);
}

TEST_F(DamagedFilesTest, GzipMembersInARowAreOneFile) {
  const std::string text =
      KinetoFile(XEvent("cpu_op", "one", "\"ts\": 1, \"dur\": 1") + ",\n" +
                 XEvent("cpu_op", "two", "\"ts\": 3, \"dur\": 1"));
  const size_t middle = text.size() / 2;
  absl::StatusOr<Trace> trace = TryRead(
      Gzip(text.substr(0, middle)) + Gzip(text.substr(middle)), "two.json.gz");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->ops().size(), 2u);
  EXPECT_TRUE(trace->losses().empty());
}

// Skipped in a build without libzstd, which refuses such files with a message.
TEST_F(DamagedFilesTest, ZstdIsReadAndACutOneGivesWhatPrecedes) {
  std::string events = XEvent("cpu_op", "first", "\"ts\": 1, \"dur\": 1");
  for (int i = 0; i < 60'000; ++i) {
    events +=
        ",\n" + XEvent("cpu_op", "op" + std::to_string(i * 7919 % 20'011),
                       "\"ts\": " + std::to_string(i * 3) + ", \"dur\": 1");
  }
  const std::string plain = folder_.Write("plain.json", KinetoFile(events));
  const std::string packed = folder_.At("packed.json.zst");
  if (std::system(("zstd -q '" + plain + "' -o '" + packed + "'").c_str()) != 0)
    GTEST_SKIP() << "no zstd program to make the file with";
  absl::StatusOr<Trace> trace = ReadTrace(packed);
  if (!trace.ok()) {
    EXPECT_NE(trace.status().message().find("built without libzstd"),
              absl::string_view::npos)
        << trace.status().message();
    return;
  }
  EXPECT_EQ(trace->ops().size(), 60'001u);
  EXPECT_TRUE(trace->losses().empty());
  const std::string bytes = ReadBytes(packed);
  std::string wrong = bytes;
  wrong.back() ^= 1;  // the checksum that the zstd program writes
  EXPECT_EQ(LossCount(*TryRead(wrong, "sum.json.zst"), "wrong-checksum"), 1);
  absl::StatusOr<Trace> half =
      TryRead(bytes.substr(0, bytes.size() / 2), "half.json.zst");
  ASSERT_TRUE(half.ok()) << half.status().message();
  EXPECT_GT(half->ops().size(), 1'000u);
  EXPECT_LT(half->ops().size(), 60'000u);
  EXPECT_NE(LossDetail(*half, "truncated-file").find("zstd stream is cut off"),
            std::string::npos)
      << LossDetail(*half, "truncated-file");
}

TEST_F(DamagedFilesTest, DamagedHeaderCostsOnlyTheHeader) {
  const Trace trace =
      Read(KinetoFile(XEvent("cpu_op", "one", "\"ts\": 1, \"dur\": 1"),
                      "\"distributedInfo\": {\"rank\": 1 2},"));
  EXPECT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(trace.run().rank, -1);
  EXPECT_EQ(LossCount(trace, "damaged-header"), 1);
}

TEST_F(DamagedFilesTest, CutInTheLogLinesBehindTheEventsKeepsAllEvents) {
  const std::string text =
      R"({"distributedInfo": {"rank": 1}, "traceEvents": [)" +
      XEvent("cpu_op", "one", "\"ts\": 1, \"dur\": 1") +
      R"(], "INFO": ["a line that is cu)";
  const Trace trace = Read(text);
  EXPECT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(trace.run().rank, 1);
  EXPECT_EQ(LossCount(trace, "truncated-file"), 1);
}

// Nothing after the damage starts like an event, so this must be parsed as one.
TEST_F(DamagedFilesTest, EventBehindADamagedOneMayBeginWithAnyKey) {
  const Trace trace =
      Read(R"([{"ph": "X" "cat": "cpu_op"}, {"args": {}, "ph": "X",)"
           R"( "cat": "cpu_op", "name": "one", "ts": 1, "dur": 1}])");
  EXPECT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(LossCount(trace, "damaged-events"), 1);
}

TEST_F(DamagedFilesTest, FileOfOnlyDamagedEventsIsAnError) {
  absl::StatusOr<Trace> trace =
      TryRead(R"({"traceEvents": [{"ph" "X"}, {"ph": : 1}]})");
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(trace.status().message().find("damaged"), absl::string_view::npos);
}

TEST_F(DamagedFilesTest, BytesOutOfPlaceNeverCrash) {
  const std::string whole = OwnFile();
  for (size_t at = 0; at < whole.size(); at += whole.size() / 60 + 1) {
    for (char byte : {'"', '{', '}', '\\', '\0', '\xff', '9'}) {
      std::string text = whole;
      text[at] = byte;
      TryRead(text).IgnoreError();
    }
  }
}

}  // namespace
}  // namespace stepscope::damaged_files_test
