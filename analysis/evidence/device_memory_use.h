// DeviceMemoryUse: how full the device's memory was, from whatever the
// recording has: samples of the allocator, allocation events with totals, or
// calls of cudaMalloc and cudaFree.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

#include "context/analysis_context.h"

namespace stepscope {

// Sizes are in bytes; -1: not known.
struct DeviceMemoryUse {
  double total = -1;          // memory of the device
  double reserved = -1;       // most that the allocator held
  double allocated = -1;      // most that tensors used
  double held = -1;           // least that tensors used at the start of a step
  double stuck = -1;          // most that was free but fragmented: parts of
                              // segments that are otherwise in use
  int64_t retries = 0;        // requests that were met only after the allocator
                              // had emptied its cache
  int64_t out_of_memory = 0;  // requests that failed
  bool grew = false;      // the allocator reserved more during the recording
  RowId peak_op = kNone;  // the op that reached `allocated`, in ops()

  // 90 % of the memory; the rest is left for fragmentation.
  double usable() const { return 0.9 * total; }
  // By which factor the batch could grow until that is used. `held` does not
  // grow with the batch. Negative if that is unknown.
  double headroom() const {
    return allocated > held ? (usable() - held) / (allocated - held) : -1;
  }
};

// REQUIRES: context.ledger is set (a run with a GPU and steps).
DeviceMemoryUse MeasureDeviceMemory(const AnalysisContext& context);

}  // namespace stepscope
