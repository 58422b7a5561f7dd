// Tests sampling of hardware counters on a fake of CUPTI's calls: one device's
// counters, and a whole collector with each version's behaviour. These tests do
// not run on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectors/cupti/collector_fixture.h"
#include "counters/device_counters.h"
#include "fakes/fake_counters.h"

namespace stepscope::counters_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kTensor[] =
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
constexpr char kSm[] = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed";
constexpr char kDram[] = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr int32_t kHz = 1000;
constexpr int64_t kIntervalNs = 1'000'000;

void Wait(int64_t ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

class DeviceCountersTest : public testing::Test {
 protected:
  DeviceCountersTest() : api_(fake_.Api()) {
    counters_.Reset(&fake_);
    counters_.Set([](FakeCounters::Settings& settings) {
      settings.values = {{kTensor, 25}, {kSm, 80}, {kDram, 50}};
    });
  }
  ~DeviceCountersTest() override { counters_.Reset(nullptr); }

  absl::StatusOr<std::unique_ptr<DeviceCounters>> Open(int32_t hz = kHz) {
    auto device = std::make_unique<DeviceCounters>(
        *api_,
        DeviceLimits{.ordinal = 0, .name = "Fake H100", .clock_khz = 1'000'000},
        hz);
    if (absl::Status s = device->Open(); !s.ok()) return s;
    return device;
  }
  absl::Status ErrorOfOpening() {
    auto opened = Open();
    EXPECT_FALSE(opened.ok());
    EXPECT_EQ(counters_.claimed(), opened.ok() ? 1 : 0);
    EXPECT_EQ(counters_.hosts(), opened.ok() ? 1 : 0);
    return opened.status();
  }

  FakeCupti fake_;
  std::shared_ptr<CuptiApi> api_;
  FakeCounters& counters_ = FakeCounters::Get();
};

TEST_F(DeviceCountersTest, SamplesFollowEachOtherWithTheirShares) {
  auto device = Open();
  ASSERT_TRUE(device.ok()) << Message(device.status());
  EXPECT_EQ((*device)->missing(), "");
  EXPECT_TRUE((*device)->is_regular());
  ASSERT_TRUE((*device)->Start().ok());
  Wait(12);
  std::vector<CounterSample> samples;
  ASSERT_TRUE((*device)->Read(samples).ok());
  Wait(5);
  ASSERT_TRUE((*device)->Stop().ok());
  ASSERT_TRUE((*device)->Read(samples).ok());
  ASSERT_GE(samples.size(), 15u);
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].end - samples[i].begin, uint64_t{kIntervalNs});
    EXPECT_FLOAT_EQ(samples[i].tensor_active_frac, 0.25F);
    EXPECT_FLOAT_EQ(samples[i].sm_active_frac, 0.8F);
    EXPECT_FLOAT_EQ(samples[i].dram_frac, 0.5F);
    if (i > 0) {
      EXPECT_EQ(samples[i].begin, samples[i - 1].end);
    }
  }
  const size_t count = samples.size();
  ASSERT_TRUE((*device)->Read(samples).ok());
  EXPECT_THAT(samples, SizeIs(count)) << "nothing is read twice";
  EXPECT_EQ((*device)->overflows(), 0);
}

TEST_F(DeviceCountersTest, EverythingIsGivenBack) {
  {
    auto device = Open();
    ASSERT_TRUE(device.ok());
    ASSERT_TRUE((*device)->Start().ok());
    EXPECT_EQ(counters_.claimed(), 1);
    EXPECT_EQ(counters_.hosts(), 1);
    EXPECT_TRUE(counters_.is_on());
  }
  EXPECT_EQ(counters_.claimed(), 0);
  EXPECT_EQ(counters_.hosts(), 0);
}

// Needs more than one of CUPTI's decode calls.
TEST_F(DeviceCountersTest, ManySamplesAreReadAtOnce) {
  auto device = Open(10'000);
  ASSERT_TRUE(device.ok());
  ASSERT_TRUE((*device)->Start().ok());
  Wait(300);
  ASSERT_TRUE((*device)->Stop().ok());
  std::vector<CounterSample> samples;
  ASSERT_TRUE((*device)->Read(samples).ok());
  EXPECT_GT(samples.size(), 2500u);
}

// Counters have different names on different devices.
TEST_F(DeviceCountersTest, AnotherNameOfACounterIsFound) {
  counters_.Set([](FakeCounters::Settings& settings) {
    settings.metrics = {
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
        "dramc__throughput.avg.pct_of_peak_sustained_elapsed"};
    settings.values = {
        {"dramc__throughput.avg.pct_of_peak_sustained_elapsed", 10}};
  });
  auto device = Open();
  ASSERT_TRUE(device.ok()) << Message(device.status());
  EXPECT_EQ((*device)->missing(), "multiprocessors");
  ASSERT_TRUE((*device)->Start().ok());
  Wait(5);
  std::vector<CounterSample> samples;
  ASSERT_TRUE((*device)->Read(samples).ok());
  ASSERT_FALSE(samples.empty());
  EXPECT_EQ(samples[0].sm_active_frac, -1);
  EXPECT_EQ(samples[0].tensor_active_frac, 0);
  EXPECT_FLOAT_EQ(samples[0].dram_frac, 0.1F);
}

TEST_F(DeviceCountersTest, WhatDoesNotFitIntoOnePassIsLeftOutFromTheEnd) {
  counters_.Set(
      [](FakeCounters::Settings& settings) { settings.most_in_one_pass = 2; });
  auto device = Open();
  ASSERT_TRUE(device.ok()) << Message(device.status());
  EXPECT_EQ((*device)->missing(), "memory");
  ASSERT_TRUE((*device)->Start().ok());
  Wait(5);
  std::vector<CounterSample> samples;
  ASSERT_TRUE((*device)->Read(samples).ok());
  ASSERT_FALSE(samples.empty());
  EXPECT_FLOAT_EQ(samples[0].tensor_active_frac, 0.25F);
  EXPECT_EQ(samples[0].dram_frac, -1);
}

TEST_F(DeviceCountersTest, NoiseAboveThePeakIsThePeak) {
  counters_.Set([](FakeCounters::Settings& settings) {
    settings.values = {{kTensor, 100.3}, {kSm, -1}, {kDram, 50}};
  });
  auto device = Open();
  ASSERT_TRUE(device.ok());
  ASSERT_TRUE((*device)->Start().ok());
  Wait(5);
  std::vector<CounterSample> samples;
  ASSERT_TRUE((*device)->Read(samples).ok());
  ASSERT_FALSE(samples.empty());
  EXPECT_EQ(samples[0].tensor_active_frac, 1);
  EXPECT_EQ(samples[0].sm_active_frac, -1);
}

// For example, GA100 and Turing.
TEST_F(DeviceCountersTest, ADeviceWithoutATimerCountsInClocks) {
  counters_.Set([](FakeCounters::Settings& settings) {
    settings.chip = "ga100";
    settings.has_timer = false;
  });
  auto device = Open();
  ASSERT_TRUE(device.ok()) << Message(device.status());
  EXPECT_FALSE((*device)->is_regular());
  // At 1 GHz, one clock is one nanosecond.
  EXPECT_EQ(counters_.interval_ns(), kIntervalNs);
}

TEST_F(DeviceCountersTest, AFullBufferIsCountedAndCountingGoesOn) {
  counters_.Set(
      [](FakeCounters::Settings& settings) { settings.most_waiting = 50; });
  auto device = Open();
  ASSERT_TRUE(device.ok());
  ASSERT_TRUE((*device)->Start().ok());
  Wait(80);
  std::vector<CounterSample> samples;
  ASSERT_TRUE((*device)->Read(samples).ok());
  EXPECT_THAT(samples, IsEmpty());
  EXPECT_EQ((*device)->overflows(), 1);
  Wait(3);
  ASSERT_TRUE((*device)->Read(samples).ok());
  EXPECT_GT(samples.size(), 0u);
  EXPECT_EQ((*device)->overflows(), 1);
}

TEST_F(DeviceCountersTest, MissingPermissionComesWithItsRemedy) {
  counters_.Set([](FakeCounters::Settings& settings) {
    settings.failures["GetAvailability"] = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  });
  const absl::Status status = ErrorOfOpening();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(Message(status),
              HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
  EXPECT_THAT(Message(status), HasSubstr("CAP_SYS_ADMIN"));
}

TEST_F(DeviceCountersTest, WhatCannotBeSampledSaysSo) {
  counters_.Set(
      [](FakeCounters::Settings& settings) { settings.is_supported = false; });
  EXPECT_TRUE(absl::IsUnavailable(ErrorOfOpening()));
  counters_.Set([](FakeCounters::Settings& settings) {
    settings.is_supported = true;
    settings.chip = "gx999";
    settings.metrics = {};
  });
  const absl::Status status = ErrorOfOpening();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), HasSubstr("gx999"));
}

// Device 0 means the thread's context here, and there is none.
TEST_F(DeviceCountersTest, AnUnansweredQuestionAboutSupportIsNoRefusal) {
  counters_.Set([](FakeCounters::Settings& settings) {
    settings.failures["DeviceSupported"] = CUPTI_ERROR_INVALID_CONTEXT;
  });
  EXPECT_TRUE(Open().ok());
}

TEST_F(DeviceCountersTest, NoCallThatFailsLeavesAnythingBehind) {
  for (const char* call :
       {"Initialize", "GetChipName", "GetAvailability", "HostInitialize",
        "AddMetrics", "GetConfigSize", "GetConfig", "GetPasses", "Enable",
        "SetConfig", "GetDataSize", "InitializeData"}) {
    counters_.Set([&](FakeCounters::Settings& settings) {
      settings.failures = {{call, CUPTI_ERROR_UNKNOWN}};
    });
    SCOPED_TRACE(call);
    EXPECT_EQ(ErrorOfOpening().code(), absl::StatusCode::kInternal);
  }
}

TEST_F(DeviceCountersTest, WhatFailedOnceMaySucceedLater) {
  DeviceCounters device(*api_, {.ordinal = 0, .name = "Fake H100"}, kHz);
  for (const char* call : {"GetAvailability", "SetConfig", "GetDataSize"}) {
    counters_.Set([&](FakeCounters::Settings& settings) {
      settings.failures = {{call, CUPTI_ERROR_UNKNOWN}};
    });
    EXPECT_FALSE(device.Open().ok());
  }
  counters_.Set(
      [](FakeCounters::Settings& settings) { settings.failures.clear(); });
  EXPECT_TRUE(device.Open().ok());
  EXPECT_EQ(counters_.hosts(), 1);
  EXPECT_TRUE(device.Start().ok());
}

class CountersTest : public AnyCupti {
 protected:
  CountersTest() {
    driver_.devices = {{.ordinal = 0,
                        .is_in_use = true,
                        .name = "Fake H100",
                        .clock_khz = 1'000'000,
                        .sm_count = 132}};
    Counters().Set([](FakeCounters::Settings& settings) {
      settings.values = {{kTensor, 25}, {kSm, 80}, {kDram, 50}};
    });
  }
  static FakeCounters& Counters() { return FakeCounters::Get(); }
  bool HasCounters() const { return fake_.version() >= 24; }

  // Records one window of `ms` milliseconds with one kernel.
  Trace Record(Collector& collector, int64_t ms = 120) {
    EXPECT_TRUE(collector.Start().ok());
    QueueKernel();
    Wait(ms);
    return StopAndBuild(collector);
  }
  static std::vector<std::string> LossesOf(const Trace& trace) {
    std::vector<std::string> names;
    for (const Loss& loss : trace.losses()) {
      if (loss.name.starts_with("cupti-counters")) names.push_back(loss.name);
    }
    return names;
  }
};

TEST_P(CountersTest, AWindowHasThemBesideItsKernels) {
  auto collector = Make({.counters_hz = kHz});
  const Trace trace = Record(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  if (!HasCounters()) {
    EXPECT_THAT(trace.device_samples(), IsEmpty());
    EXPECT_THAT(LossesOf(trace), ElementsAre("cupti-counters-unavailable"));
    return;
  }
  EXPECT_THAT(LossesOf(trace), IsEmpty());
  EXPECT_TRUE(trace.watched(Kind::kDeviceSample));
  ASSERT_GT(trace.device_samples().size(), 20u);
  int64_t last_ns = 0;
  for (const DeviceSample& sample : trace.device_samples()) {
    EXPECT_EQ(sample.device, 0);
    EXPECT_FLOAT_EQ(sample.tensor_active_frac, 0.25F);
    EXPECT_FLOAT_EQ(sample.sm_active_frac, 0.8F);
    EXPECT_FLOAT_EQ(sample.dram_frac, 0.5F);
    EXPECT_NEAR(static_cast<double>(sample.counted_ns), kIntervalNs, 1e4);
    EXPECT_GT(sample.time_ns, last_ns);
    last_ns = sample.time_ns;
  }
  // The samples use the kernels' clock.
  const int64_t kernel_ns = trace.kernels()[0].begin_ns;
  EXPECT_GT(trace.device_samples().front().time_ns, kernel_ns - 1'000'000'000);
  EXPECT_LT(trace.device_samples().front().time_ns, kernel_ns + 1'000'000'000);
}

TEST_P(CountersTest, NobodyAskedForThem) {
  auto collector = Make({.counters_hz = 0});
  const Trace trace = Record(*collector, 5);
  EXPECT_THAT(trace.device_samples(), IsEmpty());
  EXPECT_THAT(LossesOf(trace), IsEmpty());
  EXPECT_THAT(Counters().calls(), IsEmpty());
}

TEST_P(CountersTest, WhateverFailsAllElseIsRecorded) {
  if (!HasCounters()) GTEST_SKIP() << "no counters in this version";
  for (const char* call :
       {"Initialize", "GetChipName", "GetAvailability", "HostInitialize",
        "AddMetrics", "GetConfigSize", "GetConfig", "GetPasses", "Enable",
        "SetConfig", "GetDataSize", "InitializeData", "Start", "Stop", "Decode",
        "GetDataInfo", "GetSampleInfo", "Evaluate"}) {
    SCOPED_TRACE(call);
    Counters().Set([&](FakeCounters::Settings& settings) {
      settings.failures = {{call, CUPTI_ERROR_UNKNOWN}};
    });
    auto collector = Make({.counters_hz = kHz});
    const int detached = fake_.detached_by_counters();
    const Trace trace = Record(*collector, 30);
    EXPECT_EQ(trace.kernels().size(), 1u);
    EXPECT_THAT(LossesOf(trace), ElementsAre("cupti-counters-unavailable"));
    EXPECT_EQ(fake_.detached_by_counters(), detached);
    collector.reset();
    EXPECT_EQ(Counters().claimed(), 0);
    EXPECT_EQ(Counters().hosts(), 0);
  }
}

TEST_P(CountersTest, MissingPermissionSaysWhatToDo) {
  if (!HasCounters()) GTEST_SKIP() << "no counters in this version";
  Counters().Set([](FakeCounters::Settings& settings) {
    settings.failures["Enable"] = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  });
  auto collector = Make({.counters_hz = kHz});
  for (int window = 0; window < 2; ++window) {
    const Trace trace = Record(*collector, 30);
    EXPECT_EQ(trace.kernels().size(), 1u);
    ASSERT_THAT(LossesOf(trace), ElementsAre("cupti-counters-unavailable"));
    for (const Loss& loss : trace.losses()) {
      if (loss.name != "cupti-counters-unavailable") continue;
      EXPECT_THAT(loss.detail,
                  HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
      EXPECT_THAT(loss.detail, HasSubstr("Everything else is recorded"));
    }
  }
}

// Releasing counters may detach CUPTI, but the names in the records belong to
// CUPTI.
TEST_P(CountersTest, TheyAreHeldUntilAllWindowsAreDecoded) {
  if (!HasCounters()) GTEST_SKIP() << "no counters in this version";
  auto collector = Make({.counters_hz = kHz});
  ASSERT_TRUE(collector->Start().ok());
  QueueKernel();
  Wait(30);
  auto recording = collector->Stop();
  ASSERT_TRUE(recording.ok());
  EXPECT_TRUE(fake_.enabled().empty());
  collector.reset();
  EXPECT_EQ(fake_.detached_by_counters(), 0);
  EXPECT_EQ(Counters().claimed(), 1);
  const ClockReading end = ReadClock();
  TraceBuilder builder;
  (*recording)->AddTo(builder, ClockMap(begin_, end), SlotLog());
  EXPECT_GT(builder.Build().device_samples().size(), 5u);
  EXPECT_EQ(fake_.detached_by_counters(), 0);
  recording->reset();
  EXPECT_EQ(fake_.detached_by_counters(), 1);
  EXPECT_EQ(Counters().claimed(), 0);
}

TEST_P(CountersTest, EachWindowHasItsOwn) {
  if (!HasCounters()) GTEST_SKIP() << "no counters in this version";
  auto collector = Make({.counters_hz = kHz});
  const Trace first = Record(*collector);
  EXPECT_FALSE(Counters().is_on());
  Wait(20);
  const Trace second = Record(*collector);
  ASSERT_GT(first.device_samples().size(), 10u);
  ASSERT_GT(second.device_samples().size(), 10u);
  EXPECT_GT(second.device_samples().front().time_ns,
            first.device_samples().back().time_ns + 5'000'000);
}

// Sample times should be CUPTI's. A device's own clock has another epoch.
TEST_P(CountersTest, AnotherClockIsBroughtIntoLine) {
  if (!HasCounters()) GTEST_SKIP() << "no counters in this version";
  Counters().Set([](FakeCounters::Settings& settings) {
    settings.clock_offset_ns = int64_t{500} * 24 * 3600 * 1'000'000'000;
  });
  auto collector = Make({.counters_hz = kHz});
  const int64_t before = NowNs();
  const Trace trace = Record(*collector);
  ASSERT_GT(trace.device_samples().size(), 10u);
  EXPECT_THAT(LossesOf(trace), ElementsAre("cupti-counters-other-clock"));
  EXPECT_GT(trace.device_samples().front().time_ns, before - 50'000'000);
  EXPECT_LT(trace.device_samples().back().time_ns, NowNs() + 50'000'000);
}

// A rank's process sees eight devices and uses one of them.
TEST_P(CountersTest, OnlyDevicesInUseAreCounted) {
  driver_.devices.push_back(driver_.devices[0]);
  driver_.devices[1].ordinal = 1;
  driver_.devices[0].is_in_use = false;
  auto collector = Make({.counters_hz = kHz});
  const Trace trace = Record(*collector);
  if (!HasCounters()) return;
  ASSERT_FALSE(trace.device_samples().empty());
  for (const DeviceSample& sample : trace.device_samples()) {
    EXPECT_EQ(sample.device, 1);
  }
}

TEST_P(CountersTest, AWindowThatEndsAtOnceHasNone) {
  auto collector = Make({.counters_hz = kHz});
  ASSERT_TRUE(collector->Start().ok());
  const Trace trace = StopAndBuild(*collector);
  EXPECT_LT(trace.device_samples().size(), 100u);
}

INSTANTIATE_TEST_SUITE_P(EachCupti, CountersTest,
                         testing::ValuesIn(kCuptiVersions), NameOfVersion);

}  // namespace
}  // namespace stepscope::counters_test
