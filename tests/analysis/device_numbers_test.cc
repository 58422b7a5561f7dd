#include "device/device_numbers.h"

#include <gtest/gtest.h>

#include "support/trace_text.h"

namespace stepscope::device_numbers_test {
namespace {

RunInfo Listing(std::initializer_list<const char*> names) {
  RunInfo run;
  for (const char* name : names) {
    Device device;
    device.ordinal = static_cast<int32_t>(run.devices.size());
    device.name = name;
    device.sm_count = 100 + device.ordinal;
    run.devices.push_back(device);
  }
  return run;
}

TEST(DescribedDeviceTest, IsTheDeviceOfThatNumber) {
  EXPECT_EQ(DescribedDevice(Listing({"A100", "H100"}), 1).sm_count, 101);
}

TEST(DescribedDeviceTest, OutsideTheListIsAnyOfIdenticalDevices) {
  const Device device = DescribedDevice(Listing({"MI300X", "MI300X"}), 9);
  EXPECT_EQ(device.name, "MI300X");
  EXPECT_EQ(device.ordinal, 9);
  EXPECT_EQ(DescribedDevice(Listing({"A100", "H100"}), 9).name, "");
  EXPECT_EQ(DescribedDevice(RunInfo(), 9).ordinal, 9);
}

TEST(MemoryDeviceTest, IsTheSameNumberUnlessAllEventsNameAnother) {
  const auto with = [](const char* devices) {
    std::string text;
    for (const char* at = devices; *at != 0; ++at) {
      text += "allocation 1 thread=0 device_type=1 bytes=8 device=" +
              std::string(1, *at) + "\n";
    }
    return TraceFromText(text + "allocation 1 thread=0 bytes=8 device=5\n");
  };
  EXPECT_EQ(MemoryDevice(with(""), 2), 2);
  EXPECT_EQ(MemoryDevice(with("00"), 2), 0);
  EXPECT_EQ(MemoryDevice(with("02"), 2), 2);
  EXPECT_EQ(MemoryDevice(with("01"), 2), 2);  // either may be the device
}

}  // namespace
}  // namespace stepscope::device_numbers_test
