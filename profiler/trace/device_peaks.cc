#include <stepscope/contains.h>
#include <stepscope/device_peaks.h>

#include <string_view>

namespace stepscope {
namespace {

// The peak rates of a device, with which a kernel's rate is compared. fp16 is
// the rate of Tensor Cores (matrix cores on AMD) with 16-bit inputs, fp32 that
// of ordinary units. 0: the device has no such unit.
struct Entry {
  std::string_view in_name;  // the device's name contains this text
  std::string_view device;
  double fp16, tf32, fp32, gb_per_s;  // TFLOP/s and GB/s
  double fp64_share;
  int major, minor;          // used for unknown devices of this capability
  double at_most_gib = 1e9;  // for variants that differ in memory size
};

// Source: the vendors' data sheets, without sparsity. More specific names come
// first.
constexpr Entry kEntries[] = {
    {"GB200", "B200", 2250, 1120, 75, 8000, 0.5, 0, 0},
    {"B200", "B200", 2250, 1120, 75, 8000, 0.5, 10, 0},
    {"B100", "B100", 1750, 875, 60, 8000, 0.5, 0, 0},
    {"GH200", "GH200", 989, 494, 67, 4000, 0.5, 0, 0},
    {"H200", "H200", 989, 494, 67, 4800, 0.5, 0, 0},
    {"H100 PCIe", "H100 PCIe", 756, 378, 51, 2000, 0.5, 0, 0},
    {"H100 NVL", "H100 NVL", 835, 417, 60, 3900, 0.5, 0, 0},
    {"H100", "H100 SXM", 989, 494, 67, 3350, 0.5, 9, 0},
    {"H20", "H20", 148, 74, 44, 4000, 0.02, 0, 0},
    {"H800", "H800", 989, 494, 67, 3350, 0.02, 0, 0},
    {"L40S", "L40S", 362, 183, 92, 864, 1. / 64, 8, 9},
    {"L40", "L40", 181, 90, 91, 864, 1. / 64, 0, 0},
    {"L4", "L4", 121, 60, 30, 300, 1. / 64, 0, 0},
    {"RTX 5090", "RTX 5090", 209, 105, 105, 1792, 1. / 64, 12, 0},
    {"RTX 4090", "RTX 4090", 165, 83, 83, 1008, 1. / 64, 0, 0},
    {"RTX 3090", "RTX 3090", 71, 36, 36, 936, 1. / 64, 0, 0},
    {"A100", "A100-40", 312, 156, 19.5, 1555, 0.5, 0, 0, 50},
    {"A100", "A100-80", 312, 156, 19.5, 2039, 0.5, 8, 0},
    {"A800", "A800-80", 312, 156, 19.5, 2039, 0.5, 0, 0},
    {"A6000", "RTX A6000", 155, 77, 39, 768, 1. / 32, 0, 0},
    {"A40", "A40", 150, 75, 37, 696, 1. / 32, 0, 0},
    {"A30", "A30", 165, 82, 10.3, 933, 0.5, 0, 0},
    {"A10", "A10", 125, 62, 31, 600, 1. / 32, 8, 6},
    {"T4", "T4", 65, 0, 8.1, 320, 1. / 32, 7, 5},
    {"V100", "V100", 125, 0, 15.7, 900, 0.5, 7, 0},
    {"P100", "P100", 0, 0, 10.6, 732, 0.5, 6, 0},
    {"MI355", "MI355X", 2500, 0, 157, 8000, 0.5, 0, 0},
    {"MI350", "MI350X", 2300, 0, 144, 8000, 0.5, 0, 0},
    {"MI325", "MI325X", 1307, 654, 163, 6000, 0.5, 0, 0},
    {"MI300", "MI300X", 1307, 654, 163, 5300, 0.5, 0, 0},
    // ROCm reports each of its two dies as a device.
    {"MI250", "MI250X", 191, 0, 48, 1600, 1, 0, 0},
    {"MI210", "MI210", 181, 0, 45, 1600, 1, 0, 0},
    {"MI100", "MI100", 184, 0, 46, 1230, 0.25, 0, 0}};

// "A10" must not be found in "A100".
bool Names(std::string_view text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    const size_t end = at + part.size();
    const bool digit_follows =
        end < text.size() && text[end] >= '0' && text[end] <= '9';
    const bool letter_before =
        at > 0 && ((text[at - 1] >= 'A' && text[at - 1] <= 'Z') ||
                   (text[at - 1] >= '0' && text[at - 1] <= '9'));
    if (!digit_follows && !letter_before) return true;
  }
  return false;
}

DevicePeaks From(const Entry& entry, bool exact) {
  constexpr double kTera = 1e3;  // per second to per ns
  return {.device = std::string(entry.device),
          .fp16 = entry.fp16 * kTera,
          .tf32 = entry.tf32 * kTera,
          .fp32 = entry.fp32 * kTera,
          .bytes_per_ns = entry.gb_per_s,
          .fp64_share = entry.fp64_share,
          .exact = exact};
}

}  // namespace

DevicePeaks PeaksOf(const Device& device) {
  const double gib = device.memory_bytes > 0
                         ? static_cast<double>(device.memory_bytes) / (1 << 30)
                         : 1e8;
  for (const Entry& entry : kEntries) {
    if (Names(device.name, entry.in_name) && gib <= entry.at_most_gib) {
      return From(entry, true);
    }
  }
  // An unknown AMD device stays unknown: its capability numbers are not CUDA's.
  if (IsAmd(device)) return {};
  // An unknown NVIDIA device gets the figures of the newest known generation
  // that is not newer than its own. The real peaks may be higher or lower, so
  // the result is marked as not exact.
  const Entry* best = nullptr;
  for (const Entry& entry : kEntries) {
    if (entry.major == 0 || entry.major > device.compute_major ||
        (entry.major == device.compute_major &&
         entry.minor > device.compute_minor)) {
      continue;
    }
    if (best == nullptr || entry.major > best->major ||
        (entry.major == best->major && entry.minor > best->minor)) {
      best = &entry;
    }
  }
  return best == nullptr ? DevicePeaks() : From(*best, false);
}

bool IsAmd(const Device& device) {
  return Contains(device.vendor, "AMD") || Contains(device.name, "AMD") ||
         Contains(device.name, "Radeon") || Contains(device.name, "Instinct");
}

// Volta (capability 7.0) was the first generation with Tensor Cores, Ampere
// (8.0) the first with TF32 and bfloat16.
bool HasTensorCores(const Device& device) {
  if (IsAmd(device)) return PeaksOf(device).fp16 > 0;
  return device.compute_major >= 7;
}

bool HasTf32(const Device& device) {
  return !IsAmd(device) && device.compute_major >= 8;
}

bool HasBf16(const Device& device) {
  return IsAmd(device) || device.compute_major < 0 || device.compute_major >= 8;
}

}  // namespace stepscope
