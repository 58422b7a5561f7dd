// A collector on a fake CUPTI and a fake driver, used as the Session uses it.
// Runs on one version of CUPTI, or on each version that matters (AnyCupti).
#pragma once

#include <gtest/gtest.h>
#include <stepscope/slot_walk.h>

#include <memory>
#include <string>

#include "buffer_pool.h"
#include "collectors/cupti/decode_fixture.h"
#include "cupti_collector.h"
#include "fakes/fake_counters.h"
#include "fakes/fake_cupti.h"

namespace stepscope {

inline std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

class CuptiCollectorFixture : public testing::Test {
 protected:
  explicit CuptiCollectorFixture(uint32_t version = 130001) : fake_(version) {
    ReadClock();
    FakeCounters::Get().Reset(&fake_);
  }
  // A detachment that waits for a call would outlive the fake, and so would
  // blocks that a test made the pool keep.
  ~CuptiCollectorFixture() override {
    fake_.FailNothing();
    fake_.UseNewerFamily(false);
    fake_.KeepBuffers(false);
    // Completes pending detachments. A test may have made calls of one domain
    // fail.
    fake_.ProgramCalls();
    fake_.ProgramCalls(0, CUPTI_CB_DOMAIN_DRIVER_API);
    fake_.AwaitWorker();
    fake_.Deliver(/*keep_last=*/false);
    fake_.ReturnKeptBuffers();
    ProcessPool().Open(1 << 20, 1 << 16);
    (void)ProcessPool().Close();
    FakeCounters::Get().Reset(nullptr);
  }

  // Uses small buffers unless a test sets the size: a window touches the memory
  // of 32 buffers.
  std::unique_ptr<Collector> Make(CuptiOptions options = {}) {
    const CuptiOptions usual;
    if (options.max_buffer_bytes == usual.max_buffer_bytes &&
        options.buffer_bytes == usual.buffer_bytes) {
      options.max_buffer_bytes = int64_t{1} << 20;
      options.buffer_bytes = int64_t{1} << 14;
    }
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

  // Queues a kernel that runs now for one microsecond.
  void QueueKernel(uint32_t correlation = 1, const char* name = "k") {
    const auto now = static_cast<uint64_t>(NowNs());
    fake_.Queue(KernelRecord(
        {.start = now, .end = now + 1000, .correlation = correlation}, name));
  }

  // Decodes what Stop() returns.
  Trace StopAndBuild(Collector& collector) {
    auto recording = collector.Stop();
    EXPECT_TRUE(recording.ok()) << Message(recording.status());
    const ClockReading end = ReadClock();
    TraceBuilder builder;
    (*recording)->AddTo(builder, ClockMap(begin_, end), SlotLog());
    return builder.Build();
  }

  // Checks that CUPTI is left without anything of ours.
  void ExpectNothingLeftBehind() {
    EXPECT_TRUE(fake_.enabled().empty());
    EXPECT_FALSE(fake_.subscribed());
  }

  // Returns how often CUPTI was detached if it could be detached `times` times.
  int Detachments(int times) const {
    return fake_.version() < kCuptiDetachesFromGraphs ? 0 : times;
  }

  FakeCupti fake_;
  FakeDriver::State driver_;
  ClockReading begin_ = ReadClock();
};

// The versions before and after each change in CUPTI's behaviour
// (fake_cupti.h).
inline constexpr uint32_t kCuptiVersions[] = {
    18, 22, 24, 26, 28, 130001, 130100, 130101, 130200, 130300, 130500};
class AnyCupti : public CuptiCollectorFixture,
                 public testing::WithParamInterface<uint32_t> {
 protected:
  AnyCupti() : CuptiCollectorFixture(GetParam()) {}
};
inline std::string NameOfVersion(const testing::TestParamInfo<uint32_t>& info) {
  return "Version" + std::to_string(info.param);
}

}  // namespace stepscope
