// Tests recorded buffers: writing and reading them with a fake CUPTI, and
// decoding every file in tests/data/gpu, which machines with GPUs recorded.
#include "gpu/recorded_cupti.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectors/cupti/collector_fixture.h"
#include "cupti_decode.h"
#include "gpu/recorded_parts.h"
#include "support/temp_folder.h"

namespace stepscope::recorded_cupti_test {
namespace {

struct Replayed {
  CuptiDecodeResult result;
  Trace trace;
};

Replayed Replay(const RecordedCupti& recorded) {
  FakeCupti stepper(recorded.version);
  const auto api = stepper.Api();
  std::vector<CuptiBuffer> views;
  for (const auto& buffer : recorded.buffers)
    views.push_back({buffer.data(), buffer.size()});
  TraceBuilder builder;
  Replayed replayed;
  replayed.result =
      DecodeCupti({.buffers = views,
                   .times = PlainTimes(),
                   .text = [&](const char* a) { return recorded.TextAt(a); },
                   .all_calls = true},
                  *api, builder);
  replayed.trace = builder.Build();
  return replayed;
}

class RecordedCuptiTest : public CuptiCollectorFixture {
 protected:
  // Records a window with three kernels of two names under a SavingCupti.
  RecordedCupti Record() {
    // The collector owns this CUPTI, so it is read while the collector exists.
    SavingCupti* kept = nullptr;
    auto sources = Sources();
    sources.cupti = [&]() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
      auto made = std::make_unique<SavingCupti>(fake_.Api());
      kept = made.get();
      return made;
    };
    auto collector = MakeCuptiCollector({.detach_at_end = false}, sources);
    EXPECT_TRUE(collector->Start().ok());
    QueueKernel(1, "gemm");
    QueueKernel(2, "relu");
    QueueKernel(3, "gemm");
    auto recording = collector->Stop();
    EXPECT_TRUE(recording.ok());
    return kept->Recorded();
  }
  TempFolder folder_;
};

TEST_F(RecordedCuptiTest, AFileReadBackDecodesToTheSameWork) {
  const RecordedCupti recorded = Record();
  ASSERT_EQ(recorded.buffers.size(), 1u);
  EXPECT_EQ(recorded.texts.size(), 2u);
  const std::string path = folder_.At("a.cupti");
  ASSERT_TRUE(WriteRecorded(recorded, path).ok());
  const absl::StatusOr<RecordedCupti> read = ReadRecorded(path);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->version, recorded.version);
  EXPECT_EQ(read->buffers, recorded.buffers);
  EXPECT_EQ(read->texts, recorded.texts);
  const Replayed replayed = Replay(*read);
  EXPECT_EQ(replayed.result.damaged_buffers, 0);
  ASSERT_EQ(replayed.trace.kernels().size(), 3u);
  EXPECT_EQ(replayed.trace.name(replayed.trace.kernels()[0].name), "gemm");
}

TEST_F(RecordedCuptiTest, ACutFileIsDataLoss) {
  const std::string path = folder_.At("a.cupti");
  ASSERT_TRUE(WriteRecorded(Record(), path).ok());
  const std::string whole = ReadBytes(path);
  for (const size_t length :
       {size_t{0}, size_t{5}, size_t{30}, whole.size() - 1})
    EXPECT_TRUE(absl::IsDataLoss(
        ReadRecorded(folder_.Write("cut.cupti", whole.substr(0, length)))
            .status()))
        << length;
  EXPECT_TRUE(absl::IsUnavailable(ReadRecorded("/nowhere").status()));
}

// The files that GPUs recorded; under slot.sh, also those it has just recorded.
TEST(RecordedBuffersTest, OfRealGpusAreDecodedWhole) {
  const auto recorded_now = FolderOfPart("buffers");
  const std::vector<std::string> files =
      FilesWith(recorded_now.value_or(STEPSCOPE_TEST_DATA "/gpu"), ".cupti");
  if (recorded_now) {
    ASSERT_EQ(files.size(), 1u);
  }
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    const auto recorded = ReadRecorded(file);
    ASSERT_TRUE(recorded.ok());
    const Replayed replayed = Replay(*recorded);
    EXPECT_EQ(replayed.result.damaged_buffers, 0);
    EXPECT_FALSE(replayed.trace.kernels().empty());
    EXPECT_FALSE(replayed.trace.copies().empty());
    EXPECT_FALSE(replayed.trace.runtime_calls().empty());
    for (const Kernel& kernel : replayed.trace.kernels()) {
      EXPECT_NE(replayed.trace.name(kernel.name), "");
      EXPECT_LT(kernel.begin_ns, kernel.end_ns);
    }
  }
  if (files.empty()) {
    GTEST_SKIP() << "no GPU has left its buffers in tests/data/gpu yet";
  }
}

}  // namespace
}  // namespace stepscope::recorded_cupti_test
