// Nominal dense peaks of devices, for rooflines (rules.md 2.8: datasheets). No
// gain may be told from them without naming the device they belong to.
#pragma once

#include <stepscope/kernel_class.h>
#include <stepscope/trace.h>

#include <string>

namespace stepscope {

struct DevicePeaks {
  std::string device;  // whose they are: "H100 SXM"; "" if nothing is known
  // Operations per ns; 0 where the device has no such unit.
  double fp16 = 0;  // and bfloat16, on Tensor Cores or matrix cores
  double tf32 = 0;
  double fp32 = 0;
  double bytes_per_ns = 0;
  double fp64_share = 0;  // of fp32
  bool exact = false;     // of this very device; else of one of its generation,
                          // of which only ratios may be used
  bool known() const { return !device.empty(); }
};

// By the device's name; else by its compute capability.
DevicePeaks PeaksOf(const Device& device);

// What of its peak a good library kernel reaches.
inline constexpr double kGoodCompute = 0.6;
inline constexpr double kGoodBandwidth = 0.8;

// AMD's GPUs, by vendor or name.
bool IsAmd(const Device& device);
// Volta and later, CDNA and later. False where it is not known.
bool HasTensorCores(const Device& device);
// Ampere and later know TF32; PyTorch uses it for convolutions unasked.
bool HasTf32(const Device& device);

}  // namespace stepscope
