#include "occupancy.h"

#include <algorithm>

namespace stepscope {
namespace {

// The units in which the hardware allocates. Source: CUDA C++ Programming
// Guide, "Compute Capabilities"; Turing to Blackwell Tuning Guides, "Shared
// Memory".
struct Granularity {
  int32_t regs_per_warp;        // registers are allocated to warps in this unit
  int32_t schedulers;           // partitions that share the registers
  int32_t shared_bytes;         // shared memory per block is rounded up to this
  int32_t system_shared_bytes;  // taken by the driver in each block
};

Granularity GranularityOf(const DeviceLimits& device) {
  const bool ampere_or_later = device.compute_major >= 8;
  return {.regs_per_warp = 256,
          .schedulers =
              device.compute_major == 6 && device.compute_minor == 0 ? 2 : 4,
          .shared_bytes = ampere_or_later ? 128 : 256,
          .system_shared_bytes = ampere_or_later ? 1024 : 0};
}

int64_t RoundUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Occupancy EstimateOccupancy(const KernelShape& kernel,
                            const DeviceLimits& device) {
  Occupancy occupancy;
  if (device.sm_count <= 0 || device.warp_size <= 0 || kernel.blocks <= 0 ||
      kernel.threads_per_block <= 0) {
    return occupancy;
  }
  // A block takes whole warps. Blocks per SM may be below 1, because a small
  // grid does not fill the device.
  const int64_t warps =
      (static_cast<int64_t>(kernel.threads_per_block) + device.warp_size - 1) /
      device.warp_size;
  occupancy.blocks_per_sm =
      static_cast<float>(static_cast<double>(kernel.blocks) / device.sm_count);
  occupancy.warps_per_sm = occupancy.blocks_per_sm * static_cast<float>(warps);

  // Without the device's limits, only the two figures above can be computed.
  const int64_t max_warps = device.max_threads_per_sm / device.warp_size;
  if (max_warps <= 0 || device.max_blocks_per_sm <= 0 ||
      device.regs_per_sm <= 0 || device.shared_bytes_per_sm <= 0 ||
      device.compute_major < 5) {
    return occupancy;
  }
  const Granularity unit = GranularityOf(device);
  // A block fits while the SM has room for everything it needs: block slots,
  // warps, registers, shared memory. The scarcest resource decides.
  int64_t fit = std::min<int64_t>(device.max_blocks_per_sm, max_warps / warps);

  if (kernel.registers_per_thread > 0) {
    const int64_t regs_per_warp = RoundUp(
        static_cast<int64_t>(kernel.registers_per_thread) * device.warp_size,
        unit.regs_per_warp);
    // A warp runs in one partition, which has its own part of the registers.
    const int64_t warps_by_regs =
        device.regs_per_sm / unit.schedulers / regs_per_warp * unit.schedulers;
    const int64_t warps_needed = RoundUp(warps, unit.schedulers);
    const bool block_too_big =
        device.regs_per_block > 0 &&
        warps_needed * regs_per_warp > device.regs_per_block;
    fit = block_too_big ? 0 : std::min(fit, warps_by_regs / warps);
  }
  const int64_t shared = RoundUp(
      static_cast<int64_t>(std::max(kernel.static_shared_bytes, 0)) +
          std::max(kernel.dynamic_shared_bytes, 0) + unit.system_shared_bytes,
      unit.shared_bytes);
  if (shared > 0) {
    const int64_t configured = kernel.shared_bytes_configured > 0
                                   ? kernel.shared_bytes_configured
                                   : device.shared_bytes_per_sm;
    fit = std::min(fit, configured / shared);
  }
  occupancy.blocks_that_fit = static_cast<int32_t>(fit);
  // "Achieved" is an upper bound of the real occupancy: it assumes that blocks
  // are spread evenly and all run to the end.
  const double resident =
      std::min<double>(occupancy.blocks_per_sm, static_cast<double>(fit));
  occupancy.achieved_frac =
      static_cast<float>(std::min(1.0, resident * static_cast<double>(warps) /
                                           static_cast<double>(max_warps)));
  return occupancy;
}

}  // namespace stepscope
