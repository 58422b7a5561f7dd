// Uploads: copies from host memory to the device inside the steps, and what
// they cost there.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

struct Upload {
  RowId copy = kNone;  // in copies()
  size_t wait =
      SIZE_MAX;     // in AnalysisContext::waits; SIZE_MAX if nobody waited
  size_t step = 0;  // in Steps::windows: the one that asked for it
  bool steady = false;
  bool on_compute_stream = false;  // kernels run on its stream, too
  int64_t exposed_ns = 0;          // no kernel runs beside it
};

// In time order.
std::vector<Upload> FindUploads(const AnalysisContext& context);

using UploadFilter = std::function<bool(const Upload&)>;

// Means per steady step.
struct UploadSums {
  double count = 0;
  double bytes = 0;  // where known
  double copy_ns = 0;
  double exposed_ns = 0;
  double held_ns = 0;    // the host, by the transfers themselves
  double queued_ns = 0;  // the host, by what was queued before them
};
UploadSums SumUploads(const AnalysisContext& context,
                      const std::vector<Upload>& uploads,
                      const UploadFilter& filter);
// The share of steady steps whose uploads have at least `bytes`.
double ShareOfStepsWith(const AnalysisContext& context,
                        const std::vector<Upload>& uploads,
                        const UploadFilter& filter, int64_t bytes);

// Bytes per nanosecond (GB/s) of uploads from pinned memory: `measured` if this
// run has any of 1 MiB or more, else what the device's bus usually gives; 0 if
// neither is known.
struct BusRate {
  double gb_per_s = 0;
  bool measured = false;
};
BusRate PinnedRate(const Trace& trace);

// What the bus of the run's device usually gives, in GB/s; 0 if unknown.
double DeviceBusRate(const Trace& trace);

// By op: it, or an op below it, put work on a device.
std::vector<bool> OpsThatLaunch(const Trace& trace);

}  // namespace stepscope
