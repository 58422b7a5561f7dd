// Records more than the memory holds, on each version of CUPTI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "buffer_pool.h"
#include "collectors/cupti/collector_fixture.h"
#include "cupti_doctor.h"

namespace stepscope::cupti_overflow_test {
namespace {

using testing::HasSubstr;

using CuptiOverflowTest = AnyCupti;
INSTANTIATE_TEST_SUITE_P(Cuda, CuptiOverflowTest,
                         testing::ValuesIn(kCuptiVersions), NameOfVersion);

TEST_P(CuptiOverflowTest, TheProgramLivesAndTheLossIsCounted) {
  auto collector = Make({.max_buffer_bytes = 4 * 4096, .buffer_bytes = 4096});
  ASSERT_TRUE(collector->Start().ok());
  for (int i = 0; i < 5000; ++i) QueueKernel(i);
  const Trace trace = StopAndBuild(*collector);
  const auto kept = static_cast<int64_t>(trace.kernels().size());
  EXPECT_GT(kept, 50);
  EXPECT_EQ(kept + LossCount(trace, "cupti-dropped") +
                LossCount(trace, "cupti-discarded"),
            5000);
}

TEST_P(CuptiOverflowTest, AtTheEndOfTheStepRecordingStopsAndSaysSo) {
  auto collector = Make({.max_buffer_bytes = 8 * 4096, .buffer_bytes = 4096});
  ASSERT_TRUE(collector->Start().ok());
  collector->OnStep(10, NowNs());
  EXPECT_FALSE(fake_.enabled().empty());
  for (int i = 0; i < 500; ++i) QueueKernel(i);
  fake_.Deliver();
  collector->OnStep(11, NowNs());
  // From here on, recording costs the program no time.
  EXPECT_TRUE(fake_.enabled().empty());
  QueueKernel(9999);
  collector->OnStep(12, NowNs());
  const Trace trace = StopAndBuild(*collector);
  EXPECT_GT(trace.kernels().size(), 100u);
  EXPECT_THAT(LossDetail(trace, "cupti-stopped-early"),
              HasSubstr("after step 11,"));
  for (const Kernel& kernel : trace.kernels()) {
    EXPECT_NE(kernel.correlation, 9999);
  }
  EXPECT_TRUE(trace.watched(Kind::kKernel));
  ExpectNothingLeftBehind();

  ASSERT_TRUE(collector->Start().ok());  // the next window works
  QueueKernel(1);
  EXPECT_TRUE(StopAndBuild(*collector).losses().empty());
}

TEST_P(CuptiOverflowTest, ACollectorThatStoppedEarlyAndDiesLeavesNothing) {
  auto collector = Make(
      {.max_buffer_bytes = 4096, .buffer_bytes = 4096, .detach_at_end = false});
  ASSERT_TRUE(collector->Start().ok());
  for (int i = 0; i < 100; ++i) QueueKernel(i);
  fake_.Deliver();
  collector->OnStep(1, NowNs());
  collector.reset();
  ExpectNothingLeftBehind();
}

// When a kind is switched on, CUPTI dumps the objects that exist already.
TEST_P(CuptiOverflowTest, TheDoctorHasABufferToGive) {
  driver_.devices = {{.ordinal = 0, .name = "Fake A100", .sm_count = 108}};
  fake_.Queue(DeviceRecord(0, "Fake A100"));
  for (const DoctorLine& line : CheckCupti(Sources())) {
    EXPECT_TRUE(line.ok) << line.topic << ": " << line.found;
  }
  EXPECT_EQ(ProcessPool().blocks(), 0);
  ExpectNothingLeftBehind();
}

}  // namespace
}  // namespace stepscope::cupti_overflow_test
