// From CUPTI's activity records to rows of a Trace. A pure function of its
// input: it keeps no state and reads nothing but the buffers, the texts they
// point to, and CUPTI's tables of call names.
//
// Where a record ends only CUPTI knows, so buffers are walked with its own
// GetNextRecord(). A record's length is then the distance to the next one, and
// no field beyond it is read: the records of CUDA 12 and 13 grew at their tails
// only, so an older library's are read as shorter ones. Kinds that nobody here
// knows are stepped over and counted; so are records whose times CUPTI could
// not tell.
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

namespace stepscope {

struct CuptiRecords {
  std::span<const CuptiBuffer> buffers;
  CuptiTimes times;
  // What the driver says of the devices; DEVICE records fill in the rest.
  std::vector<DeviceLimits> devices = {};
  // The text a record points to; never called with null. Live it is the
  // pointer itself; where bytes are not trusted, a look-up.
  std::function<std::string_view(const char*)> text;
  // Keep every runtime and driver call, not only those worth recording.
  bool all_calls = false;
};

// What was met. Everything but `records` and `rows` is a loss.
struct CuptiDecodeResult {
  int64_t records = 0;
  int64_t rows = 0;
  int64_t unknown_kinds = 0;    // stepped over
  int64_t short_records = 0;    // without the fields every version has
  int64_t no_times = 0;         // device work whose times CUPTI did not get
  int64_t reversed_times = 0;   // ended before they began
  int64_t damaged_buffers = 0;  // CUPTI could not step on
  int64_t damaged_bytes = 0;    // behind those places
  bool saw_graphs = false;      // work that a CUDA graph launched
};

// Adds rows, streams, thread names and devices to the builder.
CuptiDecodeResult DecodeCupti(const CuptiRecords& records, const CuptiApi& api,
                              TraceBuilder& builder);

// One Loss for each thing that is missing.
void AddLosses(const CuptiDecodeResult& result, TraceBuilder& builder);

}  // namespace stepscope
