// DeviceMemoryUse: how full the device's memory was. Read from samples of the
// allocator, from allocation events with totals, or from calls of cudaMalloc
// and cudaFree, whichever the recording has.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

#include "context/analysis_context.h"

namespace stepscope {

// Sizes are in bytes; -1 if unknown.
struct DeviceMemoryUse {
  double total = -1;          // memory of the device
  double reserved = -1;       // most that the allocator held
  double allocated = -1;      // most that tensors used
  double held = -1;           // least that tensors used when a step started
  double stuck = -1;          // most that was free but fragmented: unused parts
                              // of segments that are partly in use
  int64_t retries = 0;        // requests that succeeded only after the
                              // allocator had emptied its cache
  int64_t out_of_memory = 0;  // requests that failed
  bool grew = false;      // the allocator reserved more during the recording
  RowId peak_op = kNone;  // the op at which `allocated` was reached

  // 90 % of the memory. The rest is left for fragmentation.
  double usable() const { return 0.9 * total; }
  // The factor by which the batch could grow until usable() is reached. Memory
  // in `held` does not grow with the batch. Negative if unknown.
  double headroom() const {
    return allocated > held ? (usable() - held) / (allocated - held) : -1;
  }
};

// REQUIRES: context.ledger is set (a run with a GPU and steps).
DeviceMemoryUse MeasureDeviceMemory(const AnalysisContext& context);

}  // namespace stepscope
