// DeviceMemoryUse: how full the device is, from whatever the recording has:
// the allocator's samples, allocation events with totals, failed calls.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

#include "context/analysis_context.h"

namespace stepscope {

// In bytes; -1 where it is not known.
struct DeviceMemoryUse {
  double total = -1;      // of the device
  double reserved = -1;   // most that the allocator held
  double allocated = -1;  // most that tensors used
  double held = -1;       // that tensors used at the beginning of steps
  double stuck = -1;      // free, but in segments in use elsewhere
  int64_t retries = 0;    // requests met only after the cache was emptied
  int64_t out_of_memory = 0;
  bool grew = false;      // more was reserved in the steady steps
  RowId peak_op = kNone;  // in ops(): took the last of the most

  // How many times what a batch takes would fit into 0.9 of the memory.
  double headroom() const {
    return allocated > held ? (0.9 * total - held) / (allocated - held) : -1;
  }
};

// REQUIRES: a run with a GPU and steps.
DeviceMemoryUse MeasureDeviceMemory(const AnalysisContext& m);

}  // namespace stepscope
