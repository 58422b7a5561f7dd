// CUPTI describes every device of the machine. A Trace contains only those that
// the process sees, with the numbers that PyTorch gives them.
#include <gtest/gtest.h>

#include "collectors/cupti/decode_fixture.h"

namespace stepscope::visible_devices_test {
namespace {

constexpr DeviceUuid kA = {0xa}, kB = {0xb}, kC = {0xc};

CUpti_ActivityDevice5 Record(uint32_t id, const char* name,
                             const DeviceUuid& uuid, bool is_visible = true) {
  auto record = DeviceRecord(id, name);
  std::memcpy(&record.uuid, uuid.data(), uuid.size());
  record.isCudaVisible = is_visible;
  return record;
}

DeviceLimits FromDriver(int32_t ordinal, const DeviceUuid& uuid) {
  return {.ordinal = ordinal, .uuid = uuid};
}

TEST(VisibleDevicesTest, AnInvisibleDeviceIsNotInTheTrace) {
  const Decoded decoded = Decode(RecordBuffer()
                                     .Add(Record(0, "seen", kA))
                                     .Add(Record(1, "hidden", kB, false)),
                                 {.devices = {FromDriver(0, kA)}});
  ASSERT_EQ(decoded.trace.run().devices.size(), 1u);
  EXPECT_EQ(decoded.trace.run().devices[0].name, "seen");
}

// CUDA_VISIBLE_DEVICES=2,1 on a machine with three devices: the process's
// device 0 is CUPTI's device 2.
TEST(VisibleDevicesTest, DevicesHaveTheNumbersOfTheProcess) {
  const Decoded decoded =
      Decode(RecordBuffer()
                 .Add(Record(0, "other", kA, false))
                 .Add(Record(1, "second", kB))
                 .Add(Record(2, "first", kC)),
             {.devices = {FromDriver(0, kC), FromDriver(1, kB)}});
  const auto& devices = decoded.trace.run().devices;
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].ordinal, 0);
  EXPECT_EQ(devices[0].name, "first");
  EXPECT_EQ(devices[1].ordinal, 1);
  EXPECT_EQ(devices[1].name, "second");
}

// An older library may not know which devices are visible, but the driver does.
TEST(VisibleDevicesTest, ADeviceThatTheDriverDoesNotListIsNotVisible) {
  const Decoded decoded = Decode(
      RecordBuffer().Add(Record(0, "seen", kA)).Add(Record(1, "not", kB)),
      {.devices = {FromDriver(0, kA)}});
  ASSERT_EQ(decoded.trace.run().devices.size(), 1u);
}

TEST(VisibleDevicesTest, AnInstanceIsKnownByItsOwnNumber) {
  auto instance = Record(3, "NVIDIA H200 MIG 1g.18gb", kA);
  instance.isMigEnabled = 1;
  std::memcpy(&instance.migUuid, kB.data(), kB.size());
  instance.numMultiprocessors = 16;
  auto sibling = Record(4, "sibling", kA);
  sibling.isMigEnabled = 1;
  std::memcpy(&sibling.migUuid, kC.data(), kC.size());
  const Decoded decoded = Decode(RecordBuffer().Add(sibling).Add(instance),
                                 {.devices = {FromDriver(0, kB)}});
  ASSERT_EQ(decoded.trace.run().devices.size(), 1u);
  EXPECT_EQ(decoded.trace.run().devices[0].ordinal, 0);
  EXPECT_EQ(decoded.trace.run().devices[0].sm_count, 16);
}

TEST(VisibleDevicesTest, SamplesOfOtherDevicesAreLeftOut) {
  auto sample =
      Blank<CUpti_ActivityEnvironment>(CUPTI_ACTIVITY_KIND_ENVIRONMENT);
  sample.timestamp = 100;
  sample.environmentKind = CUPTI_ACTIVITY_ENVIRONMENT_SPEED;
  RecordBuffer buffer;
  buffer.Add(sample);
  sample.deviceId = 5;
  buffer.Add(sample);
  const Decoded decoded = Decode(buffer, {.devices = {FromDriver(0, kA)}});
  ASSERT_EQ(decoded.trace.device_samples().size(), 1u);
  EXPECT_EQ(decoded.trace.device_samples()[0].device, 0);
}

}  // namespace
}  // namespace stepscope::visible_devices_test
