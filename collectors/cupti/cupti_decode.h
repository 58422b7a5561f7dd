// DecodeCupti(): CUPTI's activity records to rows of a Trace. A pure function
// of its input: it keeps no state and reads only the buffers, the texts they
// point to, and CUPTI's tables of call names.
//
// Only CUPTI knows where a record ends, so buffers are walked with its own
// GetNextRecord(). A record's length is the distance to the next one, and no
// field beyond it is read: from CUDA 12.0 to 13.5 records only grew at their
// ends, so those of an older library are shorter and those of a newer one
// longer. Unknown kinds, and records without times, are skipped and counted.
//
// The work of a CUDA graph keeps its correlation id only if that is the id of a
// graph launch: from CUDA 13.0 to 13.1 (before its Update 1) ids of graphs are
// wrong from the process's second recording on.
#pragma once

#include <stepscope/trace_builder.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "api/cuda_driver.h"
#include "api/cupti_api.h"
#include "buffer_pool.h"
#include "cupti_times.h"
#include "graph_nodes.h"

namespace stepscope {

struct CuptiRecords {
  std::span<const CuptiBuffer> buffers;
  CuptiTimes times;
  // Those that the process sees, from the driver; DEVICE records, which exist
  // for all devices of the machine, add the rest.
  std::vector<DeviceLimits> devices = {};
  // The text that a record points to; never called with null. Of a live
  // recording the pointer itself; a look-up where the bytes are not trusted.
  std::function<std::string_view(const char*)> text;
  // Where the nodes of graphs were captured; null: nobody listened.
  const GraphNodes* graph_nodes = nullptr;
  // Keep every runtime and driver call, not only those worth recording.
  bool all_calls = false;
};

// What the decoder found. Everything except `records` and `rows` is a loss.
struct CuptiDecodeResult {
  int64_t records = 0;
  int64_t rows = 0;
  int64_t unknown_kinds = 0;    // skipped
  int64_t short_records = 0;    // without fields that every version has
  int64_t no_times = 0;         // activities for which CUPTI has no times
  int64_t reversed_times = 0;   // ended before they began
  int64_t damaged_buffers = 0;  // CUPTI found no further record
  int64_t damaged_bytes = 0;    // that follow in those buffers
  int64_t wrong_launches = 0;   // work of graphs that names another call
  int64_t unknown_nodes = 0;    // kernels of graphs captured nobody knows where
  bool saw_graphs = false;      // some activities come from a CUDA graph
};

// Adds rows, streams, thread names and devices to the builder.
CuptiDecodeResult DecodeCupti(const CuptiRecords& records, const CuptiApi& api,
                              TraceBuilder& builder);

// One Loss for each thing that is missing. `version` is the library's.
void AddLosses(const CuptiDecodeResult& result, uint32_t version,
               TraceBuilder& builder);

}  // namespace stepscope
