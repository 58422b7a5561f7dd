#include "occupancy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

// NVIDIA's own calculator shares no code with ours.
#include <cuda_occupancy.h>

namespace stepscope::occupancy_test {
namespace {

DeviceLimits Device(int major, int minor, int threads, int blocks,
                    int shared_kib) {
  DeviceLimits device;
  device.compute_major = major;
  device.compute_minor = minor;
  device.sm_count = 100;
  device.warp_size = 32;
  device.max_threads_per_sm = threads;
  device.max_blocks_per_sm = blocks;
  device.regs_per_sm = 65536;
  device.regs_per_block = 65536;
  device.shared_bytes_per_sm = shared_kib << 10;
  return device;
}

// Source: CUDA C++ Programming Guide, "Compute Capabilities". 6.0 is left out,
// because NVIDIA's calculator returns the lower result of 6.0 and 6.1 for it.
std::vector<DeviceLimits> Devices() {
  return {Device(7, 0, 2048, 32, 96),   Device(7, 5, 1024, 16, 64),
          Device(8, 0, 2048, 32, 164),  Device(8, 6, 1536, 16, 100),
          Device(8, 9, 1536, 24, 100),  Device(9, 0, 2048, 32, 228),
          Device(10, 0, 2048, 32, 228), Device(12, 0, 1536, 24, 100)};
}

int BlocksByNvidia(const DeviceLimits& device, const KernelShape& kernel) {
  cudaOccDeviceProp properties;
  properties.computeMajor = device.compute_major;
  properties.computeMinor = device.compute_minor;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiprocessor = device.max_threads_per_sm;
  properties.regsPerBlock = device.regs_per_block;
  properties.regsPerMultiprocessor = device.regs_per_sm;
  properties.warpSize = device.warp_size;
  properties.sharedMemPerBlock = 48 << 10;
  properties.sharedMemPerMultiprocessor =
      static_cast<size_t>(device.shared_bytes_per_sm);
  properties.numSms = device.sm_count;
  properties.reservedSharedMemPerBlock = device.compute_major >= 8 ? 1024 : 0;
  properties.sharedMemPerBlockOptin = properties.sharedMemPerMultiprocessor -
                                      properties.reservedSharedMemPerBlock;
  cudaOccFuncAttributes function;
  function.maxThreadsPerBlock = 1024;
  function.numRegs = kernel.registers_per_thread;
  function.sharedSizeBytes = static_cast<size_t>(kernel.static_shared_bytes);
  function.partitionedGCConfig = PARTITIONED_GC_OFF;
  function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  function.maxDynamicSharedSizeBytes = properties.sharedMemPerBlockOptin;
  function.numBlockBarriers = 1;
  cudaOccDeviceState state;
  state.cacheConfig = CACHE_PREFER_SHARED;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  cudaOccResult result;
  const cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
      &result, &properties, &function, &state, kernel.threads_per_block,
      static_cast<size_t>(kernel.dynamic_shared_bytes));
  return error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1;
}

TEST(OccupancyTest, BlocksThatFitAreThoseOfNvidiasCalculator) {
  std::mt19937 random(20261121);
  int compared = 0;
  int differing = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto devices = Devices();
    const DeviceLimits& device = devices[random() % devices.size()];
    KernelShape kernel;
    kernel.blocks = 1000000;
    kernel.threads_per_block = 1 + static_cast<int>(random() % 1024);
    kernel.registers_per_thread = 16 + static_cast<int>(random() % 240);
    kernel.static_shared_bytes = static_cast<int>(random() % 32768);
    kernel.dynamic_shared_bytes = static_cast<int>(random() % 65536);
    if (random() % 3 == 0) {
      kernel.static_shared_bytes = kernel.dynamic_shared_bytes = 0;
    }
    const int expected = BlocksByNvidia(device, kernel);
    if (expected < 0) continue;
    ++compared;
    const int found = EstimateOccupancy(kernel, device).blocks_that_fit;
    if (found != expected && ++differing < 5) {
      ADD_FAILURE() << device.compute_major << "." << device.compute_minor
                    << " threads " << kernel.threads_per_block << " registers "
                    << kernel.registers_per_thread << " shared "
                    << kernel.static_shared_bytes << "+"
                    << kernel.dynamic_shared_bytes << ": " << found
                    << ", NVIDIA " << expected;
    }
  }
  EXPECT_EQ(differing, 0);
  EXPECT_GT(compared, 15000);
}

TEST(OccupancyTest, AGridSmallerThanTheDeviceIsSpreadOverIt) {
  const Occupancy occupancy = EstimateOccupancy(
      {.blocks = 50, .threads_per_block = 256, .registers_per_thread = 32},
      Device(8, 0, 2048, 32, 164));
  EXPECT_FLOAT_EQ(occupancy.blocks_per_sm, 0.5);
  EXPECT_FLOAT_EQ(occupancy.warps_per_sm, 4);
  EXPECT_FLOAT_EQ(occupancy.achieved_frac, 4.0f / 64);
}

TEST(OccupancyTest, ALargeGridIsLimitedByWhatFits) {
  const Occupancy occupancy = EstimateOccupancy(
      {.blocks = 100000, .threads_per_block = 256, .registers_per_thread = 128},
      Device(8, 0, 2048, 32, 164));
  EXPECT_EQ(occupancy.blocks_that_fit, 2);
  EXPECT_FLOAT_EQ(occupancy.achieved_frac, 16.0f / 64);
}

TEST(OccupancyTest, TheSharedMemoryAsConfiguredLimitsIt) {
  const DeviceLimits device = Device(8, 0, 2048, 32, 164);
  KernelShape kernel = {.blocks = 100000,
                        .threads_per_block = 128,
                        .registers_per_thread = 32,
                        .dynamic_shared_bytes = 15 << 10};
  EXPECT_EQ(EstimateOccupancy(kernel, device).blocks_that_fit, 10);
  kernel.shared_bytes_configured = 32 << 10;
  EXPECT_EQ(EstimateOccupancy(kernel, device).blocks_that_fit, 2);
}

TEST(OccupancyTest, WhatIsNotKnownIsNotGuessed) {
  EXPECT_EQ(EstimateOccupancy({.blocks = 10, .threads_per_block = 32}, {})
                .achieved_frac,
            -1);
  EXPECT_EQ(EstimateOccupancy({}, Device(8, 0, 2048, 32, 164)).blocks_per_sm,
            -1);
  DeviceLimits half_known;
  half_known.sm_count = 10;
  const Occupancy occupancy =
      EstimateOccupancy({.blocks = 20, .threads_per_block = 64}, half_known);
  EXPECT_FLOAT_EQ(occupancy.blocks_per_sm, 2);
  EXPECT_EQ(occupancy.achieved_frac, -1);
}

TEST(OccupancyTest, ItIsAShareWhateverTheNumbers) {
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    const auto any = [&] { return static_cast<int32_t>(random()); };
    DeviceLimits device;
    device.compute_major = any() % 20;
    device.sm_count = any();
    device.warp_size = any() % 65;
    device.max_threads_per_sm = any();
    device.max_blocks_per_sm = any();
    device.regs_per_sm = any();
    device.regs_per_block = any();
    device.shared_bytes_per_sm = any();
    const Occupancy occupancy =
        EstimateOccupancy({.blocks = any(),
                           .threads_per_block = any() % 2048,
                           .registers_per_thread = any() % 70000,
                           .static_shared_bytes = any(),
                           .dynamic_shared_bytes = any(),
                           .shared_bytes_configured = any()},
                          device);
    EXPECT_TRUE(occupancy.achieved_frac == -1 ||
                (occupancy.achieved_frac >= 0 && occupancy.achieved_frac <= 1));
  }
}

}  // namespace
}  // namespace stepscope::occupancy_test
