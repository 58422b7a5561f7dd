#include "device/device_numbers.h"

#include <algorithm>

namespace stepscope {

Device DescribedDevice(const RunInfo& run, int32_t device) {
  Device described;
  if (!run.devices.empty()) {
    const Device& first = run.devices.front();
    const auto is_it = [&](const Device& d) { return d.ordinal == device; };
    const auto is_alike = [&](const Device& d) { return d.name == first.name; };
    const auto known = std::ranges::find_if(run.devices, is_it);
    if (known != run.devices.end()) {
      described = *known;
    } else if (std::ranges::all_of(run.devices, is_alike)) {
      described = first;
    }
  }
  described.ordinal = device;
  return described;
}

int32_t MemoryDevice(const Trace& trace, int32_t device) {
  int32_t only = -1;
  for (const Allocation& row : trace.allocations()) {
    // Device type 0 is the CPU.
    if (row.device_type == 0 || row.device < 0) continue;
    if (row.device == device || (only >= 0 && row.device != only)) {
      return device;
    }
    only = row.device;
  }
  return only >= 0 ? only : device;
}

}  // namespace stepscope
