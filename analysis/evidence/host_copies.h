// Host copies: the copies between host memory and the device in each step, and
// what they cost.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

struct HostCopy {
  RowId copy = kNone;      // row of copies()
  size_t wait = SIZE_MAX;  // index into AnalysisContext::waits.all; SIZE_MAX if
                           // the host did not wait
  size_t step = 0;         // index into Steps::windows: the step that issued it
  bool steady = false;     // the step that issued it is steady
  bool on_compute_stream = false;  // its stream also runs kernels
  int64_t exposed_ns = 0;          // while no kernel runs
};

enum class Direction : uint8_t { kToDevice, kToHost };
// Returns the kind of host memory that `copy` reads or writes; nullopt if it
// does not go in that direction.
std::optional<MemoryKind> HostMemoryOf(const Copy& copy, Direction direction);

// Returns the copies of the busiest device in that direction, in time order.
std::vector<HostCopy> FindHostCopies(const AnalysisContext& context,
                                     Direction direction);

using HostCopyFilter = std::function<bool(const HostCopy&)>;

// Means per steady step, over the copies that pass a filter.
struct HostCopySums {
  double count = 0;
  double bytes = 0;  // of copies with known size
  double copy_ns = 0;
  double exposed_ns = 0;
  double held_ns = 0;    // the host waits for the transfers themselves
  double queued_ns = 0;  // the host waits for what was queued before them
};
HostCopySums SumHostCopies(const AnalysisContext& context,
                           const std::vector<HostCopy>& copies,
                           const HostCopyFilter& filter);
// Returns the share, 0 to 1, of steady steps whose copies add up to at least
// `bytes`.
double ShareOfStepsWith(const AnalysisContext& context,
                        const std::vector<HostCopy>& copies,
                        const HostCopyFilter& filter, int64_t bytes);

// Adds the three longest of `copies` to the examples of `finding`.
void AddCopyExamples(const AnalysisContext& context,
                     std::vector<const HostCopy*> copies, Finding& finding);

// Bandwidth of copies to or from pinned memory, in GB/s (bytes per ns).
struct BusRate {
  double gb_per_s = 0;    // 0: unknown
  bool measured = false;  // from copies of at least 1 MiB in this run;
                          // otherwise from DeviceBusRate()
};
BusRate PinnedRate(const Trace& trace, Direction direction);

// Returns the usual bandwidth of the PCIe bus of the run's device, in GB/s; 0
// if the device is unknown. Source: table in host_copies.cc.
double DeviceBusRate(const Trace& trace);

// Returns, by row of ops(), whether the op or an op inside it launched an
// activity.
std::vector<bool> OpsThatLaunch(const Trace& trace);
// Returns, by row of ops(), whether the op or an op inside it called the CUDA
// runtime.
std::vector<bool> OpsThatCall(const Trace& trace);

}  // namespace stepscope
