// Drops the rows that lie outside the window of a Trace.
#include <stepscope/row_times.h>
#include <stepscope/trace_builder.h>

#include <algorithm>

#include "trace_links.h"

namespace stepscope {

void TraceBuilder::Clip(const Options& options) {
  const int64_t begin = options.window_begin_ns;
  const int64_t end = options.window_end_ns;
  // Rows that overlap an edge of the window stay whole. Rows of length 0 at its
  // start stay, too.
  const auto outside = [&](const auto& row) {
    return EndOf(row) < begin || BeginOf(row) >= end;
  };
  std::erase_if(trace_.steps_, [&](const Step& step) {
    return step.end_ns <= begin || step.begin_ns >= end;
  });
  // Rows that are read once per step stay if their step stays. Settings and
  // host usage are read just after the step's end, so their own time may lie
  // outside the window.
  const auto of_no_step = [&](const auto& row) {
    return row.step >= 0 &&
           std::none_of(
               trace_.steps_.begin(), trace_.steps_.end(),
               [&](const Step& step) { return step.number == row.step; });
  };
  std::erase_if(trace_.settings_, of_no_step);
  std::erase_if(trace_.host_usage_, of_no_step);
  std::erase_if(trace_.ranges_, outside);
  std::erase_if(trace_.ops_, outside);
  std::erase_if(trace_.python_frames_, outside);
  std::erase_if(trace_.allocations_, outside);
  std::erase_if(trace_.communications_, outside);
  std::erase_if(trace_.overheads_, outside);
  std::erase_if(trace_.device_memory_, outside);
  // The sample of the last step is taken just after the window has ended.
  std::erase_if(trace_.device_samples_, [&](const DeviceSample& row) {
    return row.step >= 0 ? of_no_step(row) : outside(row);
  });
  // A device activity belongs to the window that contains its launch, even if
  // it runs after that window.
  const CallFinder finder(trace_.runtime_calls_);
  const auto launched_outside = [&](const auto& work) {
    const RowId call = finder.Of(work.correlation, work.begin_ns);
    if (call == kNone) return outside(work);
    return outside(trace_.runtime_calls_[call]);
  };
  std::erase_if(trace_.kernels_, launched_outside);
  std::erase_if(trace_.copies_, launched_outside);
  std::erase_if(trace_.memsets_, launched_outside);
  std::erase_if(trace_.syncs_, launched_outside);
  // Must be last, because the launches above are looked up among the calls.
  std::erase_if(trace_.runtime_calls_, outside);
}

}  // namespace stepscope
