// Nominal dense peak rates of devices, from their data sheets, for rooflines. A
// finding that derives a gain from these rates names the device.
#pragma once

#include <stepscope/kernel_class.h>
#include <stepscope/trace.h>

#include <string>

namespace stepscope {

struct DevicePeaks {
  std::string device;  // "H100 SXM"; "" if nothing is known
  // Operations per ns; 0 where the device has no such unit.
  double fp16 = 0;  // and bfloat16, on Tensor Cores or matrix cores
  double tf32 = 0;
  double fp32 = 0;
  double bytes_per_ns = 0;
  double fp64_share = 0;  // of fp32
  // True if the rates are those of exactly this device. False if they are those
  // of another device of the same generation: then only ratios between them are
  // meaningful.
  bool exact = false;
  bool known() const { return !device.empty(); }
};

// Looks the device up by its name, or else by its compute capability.
DevicePeaks PeaksOf(const Device& device);

// The fraction of these peaks that a good library kernel reaches.
inline constexpr double kGoodCompute = 0.6;
inline constexpr double kGoodBandwidth = 0.8;

// True for AMD's GPUs, recognised by vendor or name.
bool IsAmd(const Device& device);
// Volta and later, CDNA and later. False if the device is unknown.
bool HasTensorCores(const Device& device);
// Ampere and later. PyTorch uses TF32 for convolutions by default.
bool HasTf32(const Device& device);
// True if Tensor Cores take bfloat16 (Ampere and later, CDNA and later), or if
// the device is unknown.
bool HasBf16(const Device& device);

}  // namespace stepscope
