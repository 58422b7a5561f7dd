#include <gtest/gtest.h>
#include <stepscope/device_peaks.h>

namespace stepscope::device_peaks_test {
namespace {

Device Named(const std::string& name, int major = -1, int minor = -1,
             int64_t gib = -1) {
  Device device;
  device.name = name;
  device.compute_major = major;
  device.compute_minor = minor;
  device.memory_bytes = gib < 0 ? -1 : gib << 30;
  return device;
}

TEST(DevicePeaksTest, KnowsDevicesByTheirNames) {
  EXPECT_EQ(PeaksOf(Named("NVIDIA H100 80GB HBM3")).device, "H100 SXM");
  EXPECT_EQ(PeaksOf(Named("NVIDIA H100 PCIe")).device, "H100 PCIe");
  EXPECT_EQ(PeaksOf(Named("NVIDIA H200")).bytes_per_ns, 4800);
  EXPECT_EQ(PeaksOf(Named("NVIDIA H20")).device, "H20");
  EXPECT_EQ(PeaksOf(Named("Tesla V100-DGXS-32GB")).fp16, 125e3);
  EXPECT_EQ(PeaksOf(Named("Tesla T4")).device, "T4");
  EXPECT_EQ(PeaksOf(Named("NVIDIA L40S")).device, "L40S");
  EXPECT_EQ(PeaksOf(Named("NVIDIA L4")).device, "L4");
  EXPECT_EQ(PeaksOf(Named("AMD Instinct MI300X")).device, "MI300X");
  EXPECT_TRUE(PeaksOf(Named("AMD Instinct MI300X")).exact);
}

TEST(DevicePeaksTest, TellsVariantsApartByMemory) {
  EXPECT_EQ(PeaksOf(Named("NVIDIA A100-SXM4", 8, 0, 40)).device, "A100-40");
  EXPECT_EQ(PeaksOf(Named("NVIDIA A100-SXM4", 8, 0, 80)).device, "A100-80");
}

TEST(DevicePeaksTest, APartOfANameIsNoName) {
  EXPECT_EQ(PeaksOf(Named("NVIDIA A10")).device, "A10");
  EXPECT_NE(PeaksOf(Named("NVIDIA A1000", 8, 6)).exact, true);
  EXPECT_FALSE(PeaksOf(Named("NVIDIA RTX 4000", 8, 9)).exact);
}

TEST(DevicePeaksTest, GivesUnknownDevicesTheRatiosOfTheirGeneration) {
  const DevicePeaks ada = PeaksOf(Named("NVIDIA RTX 4000", 8, 9));
  EXPECT_EQ(ada.device, "L40S");
  EXPECT_FALSE(ada.exact);
  EXPECT_EQ(PeaksOf(Named("something", 10, 3)).device, "B200");
  EXPECT_EQ(PeaksOf(Named("something", 12, 0)).device, "RTX 5090");
  EXPECT_FALSE(PeaksOf(Named("something")).known());
  EXPECT_FALSE(PeaksOf(Named("AMD Radeon Graphics", 9, 0)).known());
}

TEST(DevicePeaksTest, KnowsWhoHasTensorCoresAndTf32) {
  EXPECT_TRUE(HasTensorCores(Named("x", 7, 0)));
  EXPECT_FALSE(HasTensorCores(Named("x", 6, 1)));
  EXPECT_FALSE(HasTensorCores(Named("x")));
  EXPECT_TRUE(HasTensorCores(Named("AMD Instinct MI210", 9, 0)));
  EXPECT_FALSE(HasTensorCores(Named("AMD Radeon Graphics", 9, 0)));
  EXPECT_TRUE(HasTf32(Named("x", 8, 0)));
  EXPECT_FALSE(HasTf32(Named("x", 7, 5)));
  EXPECT_FALSE(HasTf32(Named("AMD Instinct MI300X", 9, 4)));
}

TEST(DevicePeaksTest, Bfloat16NeedsAmpereOrAMatrixCoreOfAmds) {
  EXPECT_FALSE(HasBf16(Named("Tesla V100-SXM2-32GB", 7, 0)));
  EXPECT_FALSE(HasBf16(Named("Tesla T4", 7, 5)));
  EXPECT_TRUE(HasBf16(Named("NVIDIA A100-SXM4", 8, 0)));
  EXPECT_TRUE(HasBf16(Named("AMD Instinct MI100", 9, 0)));
  EXPECT_TRUE(HasBf16(Device()));
}

}  // namespace
}  // namespace stepscope::device_peaks_test
