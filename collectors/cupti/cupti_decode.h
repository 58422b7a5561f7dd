// DecodeCupti(): turns CUPTI's activity records into rows of a Trace. A pure
// function: it keeps no state and reads only the buffers, the texts that they
// point to, and CUPTI's tables of call names.
//
// Only CUPTI knows where a record ends, so CUPTI's own GetNextRecord() is used
// to walk through buffers. A record's length is the distance to the next one,
// and no field beyond it is read. From CUDA 12.0 to 13.5 fields were only added
// at the end of records, so those of an older library are shorter and those of
// a newer one longer. Unknown kinds, and records without times, are skipped and
// counted.
//
// The work of a CUDA graph keeps its correlation id only if it is the id of a
// graph launch. From CUDA 13.0 to 13.1 (before its Update 1) the ids of graphs
// are wrong from the process's second recording on.
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
  // The devices that the process sees, from the driver. DEVICE records, which
  // exist for all devices of the machine, add the remaining facts.
  std::vector<DeviceLimits> devices = {};
  // Returns the text that a record points to; never called with null. In a live
  // recording it returns the pointer's text itself. If the bytes are not
  // trusted, it looks the text up.
  std::function<std::string_view(const char*)> text;
  // Where the nodes of graphs were captured; null: captures were not followed.
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
  int64_t damaged_bytes = 0;    // lost bytes in those buffers
  int64_t wrong_launches = 0;   // graph work with a wrong launch
  int64_t unknown_nodes = 0;    // graph kernels captured at an unknown place
  bool saw_graphs = false;      // some activities come from a CUDA graph
};

// Adds rows, streams, thread names and devices to the builder.
CuptiDecodeResult DecodeCupti(const CuptiRecords& records, const CuptiApi& api,
                              TraceBuilder& builder);

// Adds one Loss for each thing that is missing. `version` is the library's.
void AddLosses(const CuptiDecodeResult& result, uint32_t version,
               TraceBuilder& builder);

}  // namespace stepscope
