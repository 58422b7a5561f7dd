// Tests the collector on an allocator of our own that LibTorch takes for
// CUDA's.
#include <c10/core/CachingDeviceAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/clock.h>
#include <stepscope/collectors.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>

#include <map>
#include <memory>

namespace stepscope::allocator_collector_test {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;
using testing::SizeIs;

// Returns the numbers that a test sets; allocates nothing.
class FakeAllocator : public c10::DeviceAllocator {
 public:
  std::map<int, DeviceStats> stats;
  bool ready = true;
  int peaks_reset = 0;

  bool initialized() override { return ready; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    TORCH_CHECK(stats.count(device) == 1, "Invalid device argument");
    return stats[device];
  }
  void resetAccumulatedStats(c10::DeviceIndex) override { ++peaks_reset; }
  void resetPeakStats(c10::DeviceIndex) override { ++peaks_reset; }
  c10::DataPtr allocate(size_t) override { return {}; }
  void copy_data(void*, const void*, size_t) const override {}
};

DeviceStats Stats(int64_t allocated, int64_t reserved, int64_t segments) {
  DeviceStats stats;
  stats.allocated_bytes[0].current = allocated;
  stats.reserved_bytes[0].current = reserved;
  stats.segment[0].current = segments;
  stats.num_device_alloc = segments;
  return stats;
}

class AllocatorCollectorTest : public testing::Test {
 protected:
  AllocatorCollectorTest() {
    // LibTorch keeps this pointer for ever.
    static FakeAllocator* const fake = [] {
      auto* made = new FakeAllocator;
      c10::SetAllocator(c10::DeviceType::CUDA, made);
      return made;
    }();
    fake_ = fake;
    fake_->stats.clear();
    fake_->ready = true;
    fake_->peaks_reset = 0;
  }

  Trace StopAndBuild() {
    auto recording = collector_->Stop();
    EXPECT_TRUE(recording.ok());
    const ClockReading now = ReadClock();
    TraceBuilder builder;
    (*recording)->AddTo(builder, ClockMap(now, now), SlotLog());
    return builder.Build();
  }

  FakeAllocator* fake_;
  std::unique_ptr<Collector> collector_ = MakeAllocatorCollector();
};

TEST_F(AllocatorCollectorTest, SamplesWhatTheAllocatorHoldsAtEachStep) {
  fake_->stats[0] = Stats(100, 400, 2);
  ASSERT_TRUE(collector_->Start().ok());
  fake_->stats[0].inactive_split_bytes[0].current = 30;
  collector_->OnStep(7, 1000);
  fake_->stats[0] = Stats(250, 600, 3);
  collector_->OnStep(8, 2000);
  const Trace trace = StopAndBuild();
  ASSERT_THAT(trace.device_samples(), SizeIs(2));
  const DeviceSample& first = trace.device_samples()[0];
  EXPECT_EQ(first.step, 7);
  EXPECT_EQ(first.time_ns, 1000);
  EXPECT_EQ(first.device, 0);
  EXPECT_EQ(first.allocated_bytes, 100);
  EXPECT_EQ(first.reserved_bytes, 400);
  EXPECT_EQ(first.inactive_split_bytes, 30);
  EXPECT_EQ(first.segments, 2);
  EXPECT_EQ(first.segment_allocs, 0);
  EXPECT_EQ(first.free_bytes, -1);
  EXPECT_EQ(first.throttle_reasons, -1);
  const DeviceSample& second = trace.device_samples()[1];
  EXPECT_EQ(second.allocated_bytes, 250);
  EXPECT_EQ(second.segment_allocs, 1);
}

TEST_F(AllocatorCollectorTest, CountsRetriesAndRefusalsOfEachStepAlone) {
  fake_->stats[0] = Stats(1, 2, 1);
  fake_->stats[0].num_alloc_retries = 40;  // before the window
  fake_->stats[0].num_ooms = 3;
  fake_->stats[0].num_device_free = 8;
  ASSERT_TRUE(collector_->Start().ok());
  fake_->stats[0].num_alloc_retries = 42;
  fake_->stats[0].num_device_free = 13;
  collector_->OnStep(0, 1);
  fake_->stats[0].num_ooms = 4;
  collector_->OnStep(1, 2);
  const Trace trace = StopAndBuild();
  ASSERT_THAT(trace.device_samples(), SizeIs(2));
  EXPECT_EQ(trace.device_samples()[0].alloc_retries, 2);
  EXPECT_EQ(trace.device_samples()[0].out_of_memory, 0);
  EXPECT_EQ(trace.device_samples()[0].segment_frees, 5);
  EXPECT_EQ(trace.device_samples()[1].alloc_retries, 0);
  EXPECT_EQ(trace.device_samples()[1].out_of_memory, 1);
}

TEST_F(AllocatorCollectorTest, CountersThatTheProgramResetNeverGoBackwards) {
  fake_->stats[0] = Stats(1, 2, 1);
  fake_->stats[0].num_alloc_retries = 40;
  ASSERT_TRUE(collector_->Start().ok());
  fake_->stats[0].num_alloc_retries = 1;
  collector_->OnStep(0, 1);
  EXPECT_EQ(StopAndBuild().device_samples()[0].alloc_retries, 1);
}

TEST_F(AllocatorCollectorTest, DevicesThatNobodyUsesHaveNoSamples) {
  fake_->stats[0] = DeviceStats();
  fake_->stats[1] = Stats(5, 9, 1);
  ASSERT_TRUE(collector_->Start().ok());
  collector_->OnStep(0, 1);
  const Trace trace = StopAndBuild();
  ASSERT_THAT(trace.device_samples(), SizeIs(1));
  EXPECT_EQ(trace.device_samples()[0].device, 1);
}

TEST_F(AllocatorCollectorTest, CudaThatIsInitialisedLaterIsSampledFromThen) {
  fake_->ready = false;
  ASSERT_TRUE(collector_->Start().ok());
  collector_->OnStep(0, 1);
  fake_->ready = true;
  fake_->stats[0] = Stats(5, 9, 2);
  collector_->OnStep(1, 2);
  const Trace trace = StopAndBuild();
  ASSERT_THAT(trace.device_samples(), SizeIs(1));
  EXPECT_EQ(trace.device_samples()[0].step, 1);
  EXPECT_EQ(trace.device_samples()[0].segment_allocs, 2);
}

TEST_F(AllocatorCollectorTest, AWindowAfterTheLastBeginsAnew) {
  fake_->stats[0] = Stats(1, 2, 1);
  for (int cycle = 0; cycle < 2; ++cycle) {
    fake_->stats[0].num_alloc_retries += 10;  // between the windows
    ASSERT_TRUE(collector_->Start().ok());
    fake_->stats[0].num_alloc_retries += 1;
    collector_->OnStep(cycle, 1);
    const Trace trace = StopAndBuild();
    ASSERT_THAT(trace.device_samples(), SizeIs(1));
    EXPECT_EQ(trace.device_samples()[0].alloc_retries, 1);
  }
}

TEST_F(AllocatorCollectorTest, ThePeaksOfTheProgramAreLeftAlone) {
  fake_->stats[0] = Stats(1, 2, 1);
  ASSERT_TRUE(collector_->Start().ok());
  collector_->OnStep(0, 1);
  StopAndBuild();
  EXPECT_EQ(fake_->peaks_reset, 0);
}

// Another source samples clocks. Nobody may read "no throttling" from these
// rows.
TEST_F(AllocatorCollectorTest, ItDoesNotClaimToHaveWatchedTheDevice) {
  fake_->stats[0] = Stats(1, 2, 1);
  ASSERT_TRUE(collector_->Start().ok());
  collector_->OnStep(0, 1);
  EXPECT_FALSE(StopAndBuild().watched(Kind::kDeviceSample));
}

}  // namespace
}  // namespace stepscope::allocator_collector_test
