// Tests the NVML loader on libfakecupti.so, which has NVML's symbols.
#include "nvml/nvml_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stepscope::nvml_api_test {
namespace {

constexpr DeviceUuid kWhole = {1, 2,  3,  4,  5,  6,  7,  8,
                               9, 10, 11, 12, 13, 14, 15, 16};
constexpr DeviceUuid kInstance = {255, 2,  3,  4,  5,  6,  7,  8,
                                  9,   10, 11, 12, 13, 14, 15, 16};

TEST(NvmlTest, ReadsADeviceThroughTheCInterface) {
  const auto nvml = LoadNvml(STEPSCOPE_FAKE_CUPTI);
  ASSERT_TRUE(nvml.ok());
  const auto device = (*nvml)->Find(kWhole);
  ASSERT_NE(device, nullptr);
  const NvmlReading reading = (*nvml)->Read(device, /*with_links=*/true);
  EXPECT_EQ(reading.sm_clock_mhz, 1410);
  EXPECT_EQ(reading.memory_clock_mhz, 1215);
  EXPECT_EQ(reading.throttle_reasons, 4);
  EXPECT_EQ(reading.temperature_c, 61);
  EXPECT_EQ(reading.power_mw, 312'000);
  EXPECT_EQ(reading.power_limit_mw, 400'000);
  EXPECT_EQ(reading.fan_percent, -1);  // not supported
  EXPECT_EQ(reading.pcie_sent_bytes_per_s, 1'000'000);
  EXPECT_EQ(reading.pcie_received_bytes_per_s, 12'000'000'000);
  EXPECT_EQ(reading.nvlink_sent_bytes, 2048 * 1024);
  EXPECT_EQ(reading.nvlink_received_bytes, 4096 * 1024);
}

TEST(NvmlTest, LinksAreReadOnlyIfAsked) {
  const auto nvml = LoadNvml(STEPSCOPE_FAKE_CUPTI);
  ASSERT_TRUE(nvml.ok());
  const NvmlReading reading =
      (*nvml)->Read((*nvml)->Find(kWhole), /*with_links=*/false);
  EXPECT_EQ(reading.sm_clock_mhz, 1410);
  EXPECT_EQ(reading.pcie_sent_bytes_per_s, -1);
  EXPECT_EQ(reading.nvlink_sent_bytes, -1);
}

TEST(NvmlTest, AnInstanceHasTheClocksOfItsDevice) {
  const auto nvml = LoadNvml(STEPSCOPE_FAKE_CUPTI);
  ASSERT_TRUE(nvml.ok());
  EXPECT_EQ((*nvml)->Find(kInstance), (*nvml)->Find(kWhole));
  EXPECT_EQ((*nvml)->Find(DeviceUuid{7}), nullptr);
}

TEST(NvmlTest, WithoutTheLibraryItSaysWhereItComesFrom) {
  const auto nvml = LoadNvml("/nowhere/libnvidia-ml.so.1");
  EXPECT_TRUE(absl::IsUnavailable(nvml.status()));
  EXPECT_THAT(std::string(nvml.status().message()),
              testing::HasSubstr("comes with the driver"));
  EXPECT_TRUE(absl::IsUnavailable(LoadNvml("libm.so.6").status()));
}

TEST(NvmlTest, AUuidIsWrittenAsNvmlWritesIt) {
  EXPECT_EQ(UuidText("MIG-", kInstance),
            "MIG-ff020304-0506-0708-090a-0b0c0d0e0f10");
}

}  // namespace
}  // namespace stepscope::nvml_api_test
