#include "nvml/device_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "collectors/cupti/collector_fixture.h"
#include "fakes/fake_nvml.h"

namespace stepscope::device_sampler_test {
namespace {

constexpr DeviceUuid kFirst = {1};
constexpr DeviceUuid kSecond = {2};

bool Await(const std::function<bool()>& done) {
  for (int i = 0; i < 20'000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

DeviceLimits Used(int32_t ordinal, const DeviceUuid& uuid) {
  return {.ordinal = ordinal, .uuid = uuid, .is_in_use = true};
}

class DeviceSamplerTest : public testing::Test {
 protected:
  DeviceSamplerTest() {
    ReadClock();
    fake_.SetDevices({{.uuid = kFirst, .reading = {.sm_clock_mhz = 1000}},
                      {.uuid = kSecond,
                       .reading = {.sm_clock_mhz = 2000,
                                   .power_mw = 300'000,
                                   .pcie_sent_bytes_per_s = 77,
                                   .nvlink_sent_bytes = 1}}});
  }
  // Takes readings as fast as possible, so that a test soon has enough.
  static constexpr int64_t kFast = 1'000'000;
  FakeNvml fake_;
};

TEST_F(DeviceSamplerTest, ADeviceIsFoundByItsNumberAndNamedByTheProcesss) {
  DeviceSampler sampler(fake_.Api(), kFast);
  const int64_t before = NowNs();
  ASSERT_TRUE(sampler.Start({Used(0, kSecond)}));  // CUDA_VISIBLE_DEVICES=1
  ASSERT_TRUE(Await([&] { return fake_.readings() >= 3; }));
  const std::vector<DeviceSample> samples = sampler.Stop();
  ASSERT_GE(samples.size(), 2u);
  int64_t last = before;
  for (const DeviceSample& sample : samples) {
    EXPECT_EQ(sample.device, 0);
    EXPECT_EQ(sample.sm_clock_mhz, 2000);
    EXPECT_EQ(sample.power_mw, 300'000);
    EXPECT_EQ(sample.temperature_c, -1);
    EXPECT_GE(sample.time_ns, last);
    last = sample.time_ns;
  }
}

TEST_F(DeviceSamplerTest, OutsideWindowsNothingIsRead) {
  DeviceSampler sampler(fake_.Api(), kFast);
  EXPECT_EQ(fake_.readings(), 0);
  ASSERT_TRUE(sampler.Start({Used(0, kFirst)}));
  ASSERT_TRUE(Await([&] { return fake_.readings() > 0; }));
  (void)sampler.Stop();
  // At most one more: the reading in progress.
  const int after = fake_.readings();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_LE(fake_.readings(), after + 1);
  ASSERT_TRUE(sampler.Start({Used(3, kSecond)}));
  ASSERT_TRUE(Await([&] { return fake_.readings() > after + 3; }));
  for (const DeviceSample& sample : sampler.Stop()) {
    EXPECT_EQ(sample.device, 3);  // no sample of the first window
  }
}

TEST_F(DeviceSamplerTest, LinksAreReadLessOftenAndRatesComeFromCounts) {
  fake_.SendPerReading(5'000'000);
  DeviceSampler sampler(fake_.Api(), kFast);
  ASSERT_TRUE(sampler.Start({Used(0, kSecond)}));
  ASSERT_TRUE(Await([&] { return fake_.readings_of_links() >= 3; }));
  const std::vector<DeviceSample> samples = sampler.Stop();
  EXPECT_GE(fake_.readings(),
            (fake_.readings_of_links() - 1) * DeviceSampler::kLinksEvery);
  const DeviceSample* before = nullptr;
  int rates = 0;
  for (const DeviceSample& sample : samples) {
    if (sample.pcie_sent_bytes_per_s < 0) continue;
    EXPECT_EQ(sample.pcie_sent_bytes_per_s, 77);
    EXPECT_EQ(sample.nvlink_received_bytes_per_s, -1);
    if (before == nullptr) {
      EXPECT_EQ(sample.nvlink_sent_bytes_per_s, -1);
    } else {
      ++rates;
      EXPECT_NEAR(static_cast<double>(sample.nvlink_sent_bytes_per_s) *
                      static_cast<double>(sample.time_ns - before->time_ns),
                  5e15, 1e13);
    }
    before = &sample;
  }
  EXPECT_GE(rates, 1);
}

TEST_F(DeviceSamplerTest, OnlyDevicesInUseAreSampled) {
  DeviceSampler sampler(fake_.Api(), kFast);
  DeviceLimits idle = Used(0, kFirst);
  idle.is_in_use = false;
  EXPECT_FALSE(sampler.Start({idle}));
  EXPECT_FALSE(sampler.Start({Used(0, {9})}));  // NVML does not know it
  ASSERT_TRUE(sampler.Start({idle, Used(1, kSecond)}));
  ASSERT_TRUE(Await([&] { return fake_.readings() > 0; }));
  for (const DeviceSample& sample : sampler.Stop()) {
    EXPECT_EQ(sample.device, 1);
  }
}

class NvmlCollectorTest : public CuptiCollectorFixture {
 protected:
  NvmlCollectorTest() {
    nvml_.SetDevices({{.uuid = kFirst, .reading = {.sm_clock_mhz = 1234}}});
    driver_.devices = {Used(0, kFirst)};
  }
  std::unique_ptr<Collector> MakeWithNvml(const CuptiOptions& options = {}) {
    auto sources = Sources();
    sources.nvml = [this]() -> absl::StatusOr<std::unique_ptr<NvmlApi>> {
      return nvml_.Api();
    };
    return MakeCuptiCollector(options, sources);
  }
  FakeNvml nvml_;
};

TEST_F(NvmlCollectorTest, ClocksComeFromNvmlAndNotTwice) {
  auto collector = MakeWithNvml();
  ASSERT_TRUE(collector->Start().ok());
  EXPECT_FALSE(fake_.enabled().contains(CUPTI_ACTIVITY_KIND_ENVIRONMENT));
  ASSERT_TRUE(Await([&] { return nvml_.readings() > 1; }));
  const Trace trace = StopAndBuild(*collector);
  EXPECT_TRUE(trace.watched(Kind::kDeviceSample));
  ASSERT_FALSE(trace.device_samples().empty());
  EXPECT_EQ(trace.device_samples()[0].sm_clock_mhz, 1234);
}

TEST_F(NvmlCollectorTest, WithoutNvmlTheyComeFromCupti) {
  auto sources = Sources();
  int asked = 0;
  sources.nvml = [&]() -> absl::StatusOr<std::unique_ptr<NvmlApi>> {
    ++asked;
    return absl::UnavailableError("none");
  };
  auto collector = MakeCuptiCollector({}, sources);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(collector->Start().ok());
    EXPECT_TRUE(fake_.enabled().contains(CUPTI_ACTIVITY_KIND_ENVIRONMENT));
    (void)collector->Stop();
  }
  EXPECT_EQ(asked, 1);
}

TEST_F(NvmlCollectorTest, WhereNobodyWantsClocksNvmlIsNotAsked) {
  auto collector = MakeWithNvml({.record_environment = false});
  ASSERT_TRUE(collector->Start().ok());
  const Trace trace = StopAndBuild(*collector);
  EXPECT_FALSE(trace.watched(Kind::kDeviceSample));
  EXPECT_EQ(nvml_.readings(), 0);
}

TEST_F(NvmlCollectorTest, AStartThatFailsStopsTheSamples) {
  fake_.FailKind(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ERROR_UNKNOWN);
  auto collector = MakeWithNvml();
  EXPECT_FALSE(collector->Start().ok());
  const int after = nvml_.readings();
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  EXPECT_LE(nvml_.readings(), after + 1);
}

}  // namespace
}  // namespace stepscope::device_sampler_test
