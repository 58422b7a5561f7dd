// A collector on a fake CUPTI and a fake driver, driven as the Session does.
#pragma once

#include <gtest/gtest.h>
#include <stepscope/slot_walk.h>

#include <memory>
#include <string>

#include "buffer_pool.h"
#include "collectors/cupti/decode_fixture.h"
#include "cupti_collector.h"
#include "fakes/fake_cupti.h"

namespace stepscope {

inline std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

class CuptiCollectorFixture : public testing::Test {
 protected:
  CuptiCollectorFixture() { ReadClock(); }
  // A leave-taking that waits for a call would outlive the fake, and so would
  // blocks of the pool that a test made it keep.
  ~CuptiCollectorFixture() override {
    fake_.FailNothing();
    fake_.KeepBuffers(false);
    fake_.ProgramCalls();
    fake_.Deliver(/*keep_last=*/false);
    fake_.ReturnKeptBuffers();
    ProcessPool().Open(1 << 20, 1 << 16);
    (void)ProcessPool().Close();
  }

  std::unique_ptr<Collector> Make(const CuptiOptions& options = {}) {
    return MakeCuptiCollector(options, Sources());
  }
  CuptiSources Sources() {
    return {.driver = [this]() -> absl::StatusOr<std::unique_ptr<CudaDriver>> {
              return std::unique_ptr<CudaDriver>(
                  std::make_unique<FakeDriver>(&driver_));
            },
            .cupti = [this]() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
              return fake_.Api();
            }};
  }

  // A kernel that runs now, for a microsecond.
  void QueueKernel(uint32_t correlation = 1, const char* name = "k") {
    const auto now = static_cast<uint64_t>(NowNs());
    fake_.Queue(KernelRecord(
        {.start = now, .end = now + 1000, .correlation = correlation}, name));
  }

  // What Stop() gives, decoded.
  Trace StopAndBuild(Collector& collector) {
    auto recording = collector.Stop();
    EXPECT_TRUE(recording.ok()) << Message(recording.status());
    const ClockReading end = ReadClock();
    TraceBuilder builder;
    (*recording)->AddTo(builder, ClockMap(begin_, end), SlotLog());
    return builder.Build();
  }

  // Nothing of ours is left in CUPTI.
  void ExpectNothingLeftBehind() {
    EXPECT_TRUE(fake_.enabled().empty());
    EXPECT_EQ(fake_.enabled_calls(), 0u);
    EXPECT_FALSE(fake_.subscribed());
  }

  FakeCupti fake_;
  FakeDriver::State driver_;
  ClockReading begin_ = ReadClock();
};

}  // namespace stepscope
