#include <stepscope/trace_builder.h>

namespace stepscope {
namespace {

// Needed because a file's header may follow its events: some readers learn the
// epoch time of ts 0 only after they have read events.
template <typename Row>
void Shift(std::vector<Row>& rows, int64_t delta_ns) {
  for (Row& row : rows) {
    row.begin_ns += delta_ns;
    row.end_ns += delta_ns;
  }
}

}  // namespace

void TraceBuilder::ShiftTimes(int64_t delta_ns) {
  if (delta_ns == 0) return;
  Shift(trace_.steps_, delta_ns);
  Shift(trace_.ranges_, delta_ns);
  Shift(trace_.ops_, delta_ns);
  Shift(trace_.runtime_calls_, delta_ns);
  Shift(trace_.kernels_, delta_ns);
  Shift(trace_.copies_, delta_ns);
  Shift(trace_.memsets_, delta_ns);
  Shift(trace_.syncs_, delta_ns);
  Shift(trace_.overheads_, delta_ns);
  Shift(trace_.python_frames_, delta_ns);
  Shift(trace_.communications_, delta_ns);
  Shift(trace_.host_usage_, delta_ns);
  for (Allocation& row : trace_.allocations_) row.time_ns += delta_ns;
  for (Settings& row : trace_.settings_) row.time_ns += delta_ns;
  for (DeviceMemory& row : trace_.device_memory_) row.time_ns += delta_ns;
  for (DeviceSample& row : trace_.device_samples_) row.time_ns += delta_ns;
  // -1 is "unknown" and stays.
  for (Kernel& row : trace_.kernels_) {
    if (row.queued_ns >= 0) row.queued_ns += delta_ns;
    if (row.submitted_ns >= 0) row.submitted_ns += delta_ns;
  }
}

}  // namespace stepscope
