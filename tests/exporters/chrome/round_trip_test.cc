// Tests that reading what the Chrome writer wrote gives a Trace equal to the
// live one, in both flavours.
#include <gtest/gtest.h>
#include <stepscope/export.h>
#include <stepscope/read.h>
#include <stepscope/trace_builder.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "support/random_trace.h"
#include "support/trace_copy.h"
#include "support/trace_equal.h"

namespace stepscope::round_trip_test {
namespace {

class RoundTripTest : public testing::Test {
 protected:
  RoundTripTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("stepscope_round_trip_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~RoundTripTest() override { std::filesystem::remove_all(folder_); }

  // Writes `trace` and reads it back.
  Trace Again(const Trace& trace, Format format,
              const std::string& name = "trace.json") {
    const std::string path = (folder_ / name).string();
    const absl::Status written = WriteTrace(trace, {}, format, path);
    EXPECT_TRUE(written.ok()) << written.message();
    absl::StatusOr<Trace> read = ReadTrace(path);
    EXPECT_TRUE(read.ok()) << read.status().message();
    return read.ok() ? *std::move(read) : Trace();
  }

  std::filesystem::path folder_;
};

TEST_F(RoundTripTest, KinetoFlavourGivesTheSameTrace) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    RandomTraceOptions options{.seed = seed};
    options.gpu = seed % 3 != 0;
    options.steps = static_cast<int>(seed % 5);
    const Trace trace = RandomTrace(options);
    ASSERT_TRUE(TraceEquals(trace, Again(trace, Format::kChromeKineto)))
        << "seed " << seed;
  }
}

TEST_F(RoundTripTest, TbFlavourGivesTheSameTrace) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    RandomTraceOptions options{.seed = seed};
    options.gpu = seed % 3 != 0;
    const Trace trace = RandomTrace(options);
    ASSERT_TRUE(TraceEquals(trace, Again(trace, Format::kChromeTb)))
        << "seed " << seed;
  }
}

TEST_F(RoundTripTest, GzippedFileGivesTheSameTrace) {
  const Trace trace = RandomTrace({.seed = 7, .steps = 20});
  EXPECT_TRUE(
      TraceEquals(trace, Again(trace, Format::kChromeKineto, "trace.json.gz")));
}

TEST_F(RoundTripTest, EmptyTraceComesBackEmpty) {
  const Trace trace = TraceBuilder().Build();
  EXPECT_TRUE(TraceEquals(trace, Again(trace, Format::kChromeKineto)));
  EXPECT_TRUE(TraceEquals(trace, Again(trace, Format::kChromeTb)));
}

TEST_F(RoundTripTest, SecondGenerationIsTheSameFile) {
  const Trace trace = RandomTrace({.seed = 11});
  const Trace once = Again(trace, Format::kChromeKineto, "one.json");
  Again(once, Format::kChromeKineto, "two.json");
  const auto size = [&](const char* name) {
    return std::filesystem::file_size(folder_ / name);
  };
  EXPECT_EQ(size("one.json"), size("two.json"));
}

TEST_F(RoundTripTest, CollectiveOfWhichNothingIsKnownStaysOne) {
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(1, 1);
  Op op;
  op.end_ns = 100;
  op.name = builder.Intern("record_param_comms");
  op.thread = thread;
  builder.Add(op);
  Communication communication;
  communication.end_ns = 100;
  communication.thread = thread;
  builder.Add(communication);
  const Trace trace = builder.Build();
  EXPECT_TRUE(TraceEquals(trace, Again(trace, Format::kChromeKineto)));
}

// The tb flavour adds up totals for the plugin, but nobody recorded them.
TEST_F(RoundTripTest, TotalsThatWereAddedUpStayUnknown) {
  TraceBuilder builder;
  Allocation event;
  event.bytes = 64;
  event.thread = builder.ThreadRow(1, 1);
  builder.Add(event);
  event.time_ns = 10;
  event.total_reserved_bytes = 4096;
  builder.Add(event);
  const Trace trace = builder.Build();
  EXPECT_TRUE(TraceEquals(trace, Again(trace, Format::kChromeTb)));
}

// Makes sure that the tests above compare something.
TEST_F(RoundTripTest, RandomTraceHasRowsInEveryTable) {
  const Trace trace = RandomTrace({.seed = 1, .steps = 10});
  EXPECT_FALSE(trace.threads().empty());
  EXPECT_FALSE(trace.steps().empty());
  EXPECT_FALSE(trace.ranges().empty());
  EXPECT_FALSE(trace.ops().empty());
  EXPECT_FALSE(trace.op_inputs().empty());
  EXPECT_FALSE(trace.stacks().empty());
  EXPECT_FALSE(trace.runtime_calls().empty());
  EXPECT_FALSE(trace.kernels().empty());
  EXPECT_FALSE(trace.copies().empty());
  EXPECT_FALSE(trace.memsets().empty());
  EXPECT_FALSE(trace.syncs().empty());
  EXPECT_FALSE(trace.overheads().empty());
  EXPECT_FALSE(trace.python_frames().empty());
  EXPECT_FALSE(trace.allocations().empty());
  EXPECT_FALSE(trace.communications().empty());
  EXPECT_FALSE(trace.settings().empty());
  EXPECT_FALSE(trace.host_usage().empty());
  EXPECT_FALSE(trace.loaders().empty());
  EXPECT_FALSE(trace.streams().empty());
  EXPECT_FALSE(trace.device_memory().empty());
  EXPECT_FALSE(trace.device_samples().empty());
  EXPECT_FALSE(trace.losses().empty());
}

TEST_F(RoundTripTest, TraceEqualsSeesADifference) {
  const Trace trace = RandomTrace({.seed = 5});
  EXPECT_FALSE(TraceEquals(trace, RandomTrace({.seed = 6})));
  TraceBuilder builder;
  AddAll(trace, builder);
  builder.Add(Loss{"buffer-full", "", 1, Severity::kWarning});
  EXPECT_FALSE(TraceEquals(trace, builder.Build()));
}

}  // namespace
}  // namespace stepscope::round_trip_test
