#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectors/cupti/decode_fixture.h"

namespace stepscope::cupti_decode_objects_test {
namespace {

// A damaged record may have such a number. The device's own number is in
// kilobytes.
TEST(CuptiDeviceTest, ABandwidthBeyondAllNumbersIsTheLargest) {
  auto record = DeviceRecord(0, "A100");
  record.globalMemoryBandwidth = ~uint64_t{0};
  const Decoded decoded = Decode(RecordBuffer().Add(record));
  ASSERT_EQ(decoded.trace.run().devices.size(), 1u);
  EXPECT_EQ(decoded.trace.run().devices[0].memory_bandwidth_bytes_per_s,
            INT64_MAX / 1000 * 1000);
}

TEST(CuptiDeviceTest, ItsRecordDescribesIt) {
  const Decoded decoded =
      Decode(RecordBuffer().Add(DeviceRecord(1, "NVIDIA A100")));
  ASSERT_EQ(decoded.trace.run().devices.size(), 1u);
  const Device& device = decoded.trace.run().devices[0];
  EXPECT_EQ(device.ordinal, 1);
  EXPECT_EQ(device.name, "NVIDIA A100");
  EXPECT_EQ(device.vendor, "Nvidia");
  EXPECT_EQ(device.memory_bytes, int64_t{40} << 30);
  EXPECT_EQ(device.memory_bandwidth_bytes_per_s, 1555200000000);
  EXPECT_EQ(device.compute_major, 8);
  EXPECT_EQ(device.compute_minor, 0);
  EXPECT_EQ(device.sm_count, 108);
  EXPECT_EQ(device.max_threads_per_sm, 2048);
  EXPECT_EQ(device.warp_size, 32);
  EXPECT_EQ(device.regs_per_sm, 65536);
  EXPECT_EQ(device.shared_memory_per_sm_bytes, 164 << 10);
  EXPECT_EQ(device.clock_khz, 1410000);
}

TEST(CuptiDeviceTest, WhatTheDriverSaysIsEnough) {
  const Decoded decoded =
      Decode(RecordBuffer(), {.devices = {{.ordinal = 0,
                                           .name = "H200",
                                           .compute_major = 9,
                                           .sm_count = 132}}});
  ASSERT_EQ(decoded.trace.run().devices.size(), 1u);
  EXPECT_EQ(decoded.trace.run().devices[0].name, "H200");
}

TEST(CuptiDeviceTest, ADeviceToldTwiceIsOneDevice) {
  const Decoded decoded = Decode(
      RecordBuffer().Add(DeviceRecord(0, "A100")).Add(DeviceRecord(0, "A100")));
  EXPECT_EQ(decoded.trace.run().devices.size(), 1u);
}

TEST(CuptiDeviceTest, AnImpossibleNumberIsNoDevice) {
  const Decoded decoded =
      Decode(RecordBuffer().Add(DeviceRecord(4000000000u, "A100")));
  EXPECT_TRUE(decoded.trace.run().devices.empty());
}

CUpti_ActivityStream StreamRecord(uint32_t context, uint32_t id,
                                  CUpti_ActivityStreamFlag flag) {
  auto record = Blank<CUpti_ActivityStream>(CUPTI_ACTIVITY_KIND_STREAM);
  record.contextId = context;
  record.streamId = id;
  record.flag = flag;
  return record;
}

TEST(CuptiStreamTest, ContextsNullStreamAndNamesComeTogether) {
  auto context = Blank<CUpti_ActivityContext3>(CUPTI_ACTIVITY_KIND_CONTEXT);
  context.contextId = 1;
  context.deviceId = 2;
  context.nullStreamId = 7;
  auto high =
      StreamRecord(1, 20, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING);
  high.priority = static_cast<uint32_t>(-5);
  auto name = Blank<CUpti_ActivityName>(CUPTI_ACTIVITY_KIND_NAME);
  name.objectKind = CUPTI_ACTIVITY_OBJECT_STREAM;
  name.objectId.dcs.streamId = 20;
  name.name = "copies";
  const Decoded decoded =
      Decode(RecordBuffer().Add(high).Add(high).Add(context).Add(name));
  ASSERT_EQ(decoded.trace.streams().size(), 2u);  // one is reported twice
  const Stream& null_stream = decoded.trace.streams()[0];
  EXPECT_EQ(null_stream.id, 7);
  EXPECT_TRUE(null_stream.is_default);
  EXPECT_EQ(null_stream.device, 2);
  const Stream& copies = decoded.trace.streams()[1];
  EXPECT_EQ(copies.id, 20);
  EXPECT_EQ(copies.priority, -5);
  EXPECT_TRUE(copies.is_non_blocking);
  EXPECT_FALSE(copies.is_default);
  EXPECT_EQ(copies.device, 2);
  EXPECT_EQ(decoded.trace.name(copies.name), "copies");
}

TEST(CuptiNameTest, AThreadGetsItsNameUnlessItHasOne) {
  auto name = Blank<CUpti_ActivityName>(CUPTI_ACTIVITY_KIND_NAME);
  name.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  name.objectId.pt.processId = 10;
  name.objectId.pt.threadId = 11;
  name.name = "loader";
  auto again = name;
  again.name = "other";
  const Decoded decoded = Decode(RecordBuffer().Add(name).Add(again));
  ASSERT_EQ(decoded.trace.threads().size(), 1u);
  EXPECT_EQ(decoded.trace.name(decoded.trace.threads()[0].name), "loader");
}

TEST(CuptiMemoryTest, AllocationsAndReleasesHaveOppositeSigns) {
  auto record = Blank<CUpti_ActivityMemory4>(CUPTI_ACTIVITY_KIND_MEMORY2);
  record.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.correlationId = 4;
  record.address = 0x7f0000;
  record.bytes = 2 << 20;
  record.timestamp = 500;
  record.deviceId = 1;
  auto release = record;
  release.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  release.timestamp = 900;
  const Decoded decoded = Decode(RecordBuffer().Add(record).Add(release));
  ASSERT_EQ(decoded.trace.device_memory().size(), 2u);
  const DeviceMemory& first = decoded.trace.device_memory()[0];
  EXPECT_EQ(first.time_ns, Ours(500));
  EXPECT_EQ(first.bytes, 2 << 20);
  EXPECT_EQ(first.address, 0x7f0000u);
  EXPECT_EQ(first.kind, MemoryKind::kDevice);
  EXPECT_EQ(first.device, 1);
  EXPECT_EQ(first.correlation, 4);
  EXPECT_FALSE(first.is_async);
  EXPECT_EQ(first.stream, -1);
  EXPECT_EQ(first.pool_bytes, -1);
  EXPECT_EQ(decoded.trace.name(first.name), "alloc");
  const DeviceMemory& second = decoded.trace.device_memory()[1];
  EXPECT_EQ(second.bytes, -(2 << 20));
  EXPECT_EQ(decoded.trace.name(second.name), "release");
}

TEST(CuptiMemoryTest, AStreamOrderedAllocationNamesItsPool) {
  auto record = Blank<CUpti_ActivityMemory4>(CUPTI_ACTIVITY_KIND_MEMORY2);
  record.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  record.timestamp = 500;
  record.isAsync = 1;
  record.streamId = 13;
  record.memoryPoolConfig.memoryPoolType =
      CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  record.memoryPoolConfig.pool.size = 1000;
  record.memoryPoolConfig.utilizedSize = 600;
  for (const uint32_t version : {22u, 130001u}) {
    const Decoded decoded =
        Decode(RecordBuffer().Add(
                   record, RecordBytesOf(CUPTI_ACTIVITY_KIND_MEMORY2, version)),
               {.version = version});
    ASSERT_EQ(decoded.trace.device_memory().size(), 1u);
    const DeviceMemory& row = decoded.trace.device_memory()[0];
    EXPECT_TRUE(row.is_async);
    EXPECT_EQ(row.stream, 13);
    EXPECT_EQ(row.pool_bytes, 1000);
    EXPECT_EQ(row.pool_used_bytes, 600);
  }
}

TEST(CuptiMemoryTest, AnImportedPoolHasNoSize) {
  auto record = Blank<CUpti_ActivityMemory4>(CUPTI_ACTIVITY_KIND_MEMORY2);
  record.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  record.timestamp = 500;
  record.memoryPoolConfig.memoryPoolType =
      CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED;
  record.memoryPoolConfig.pool.processId = 4711;
  const Decoded decoded = Decode(RecordBuffer().Add(record));
  EXPECT_EQ(decoded.trace.device_memory()[0].pool_bytes, -1);
}

TEST(CuptiMemoryTest, PoolsAreCreatedTrimmedAndDestroyed) {
  auto record =
      Blank<CUpti_ActivityMemoryPool3>(CUPTI_ACTIVITY_KIND_MEMORY_POOL);
  record.timestamp = 100;
  record.address = 77;
  record.size = 4096;
  record.utilizedSize = 1024;
  record.memoryPoolOperationType =
      CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED;
  auto trimmed = record;
  trimmed.timestamp = 200;
  trimmed.memoryPoolOperationType =
      CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED;
  auto destroyed = record;
  destroyed.timestamp = 300;
  destroyed.memoryPoolOperationType =
      CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED;
  const Decoded decoded =
      Decode(RecordBuffer().Add(record).Add(trimmed).Add(destroyed));
  const auto rows = decoded.trace.device_memory();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(decoded.trace.name(rows[0].name), "pool created");
  EXPECT_EQ(decoded.trace.name(rows[1].name), "pool trimmed");
  EXPECT_EQ(decoded.trace.name(rows[2].name), "pool destroyed");
  EXPECT_EQ(rows[0].bytes, 0);
  EXPECT_EQ(rows[0].pool_bytes, 4096);
  EXPECT_EQ(rows[0].pool_used_bytes, 1024);
}

TEST(CuptiEnvironmentTest, EachSampleHasWhatItTells) {
  auto speed =
      Blank<CUpti_ActivityEnvironment>(CUPTI_ACTIVITY_KIND_ENVIRONMENT);
  speed.timestamp = 100;
  speed.deviceId = 1;
  speed.environmentKind = CUPTI_ACTIVITY_ENVIRONMENT_SPEED;
  speed.data.speed.smClock = 1410;
  speed.data.speed.memoryClock = 1215;
  speed.data.speed.clocksThrottleReasons =
      CUPTI_CLOCKS_THROTTLE_REASON_SW_POWER_CAP;
  auto power = speed;
  power.timestamp = 200;
  power.environmentKind = CUPTI_ACTIVITY_ENVIRONMENT_POWER;
  power.data.power.power = 400000;
  power.data.power.powerLimit = 500000;
  auto heat = speed;
  heat.timestamp = 300;
  heat.environmentKind = CUPTI_ACTIVITY_ENVIRONMENT_TEMPERATURE;
  heat.data.temperature.gpuTemperature = 71;
  auto fan = speed;
  fan.timestamp = 400;
  fan.environmentKind = CUPTI_ACTIVITY_ENVIRONMENT_COOLING;
  fan.data.cooling.fanSpeed = 60;
  const Decoded decoded =
      Decode(RecordBuffer().Add(speed).Add(power).Add(heat).Add(fan));
  const auto samples = decoded.trace.device_samples();
  ASSERT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples[0].time_ns, Ours(100));
  EXPECT_EQ(samples[0].device, 1);
  EXPECT_EQ(samples[0].sm_clock_mhz, 1410);
  EXPECT_EQ(samples[0].memory_clock_mhz, 1215);
  EXPECT_EQ(samples[0].throttle_reasons, 4);
  EXPECT_EQ(samples[0].power_mw, -1);
  EXPECT_EQ(samples[1].power_mw, 400000);
  EXPECT_EQ(samples[1].power_limit_mw, 500000);
  EXPECT_EQ(samples[1].sm_clock_mhz, -1);
  EXPECT_EQ(samples[2].temperature_c, 71);
  EXPECT_EQ(samples[3].fan_percent, 60);
  EXPECT_EQ(samples[3].step, -1);
}

}  // namespace
}  // namespace stepscope::cupti_decode_objects_test
