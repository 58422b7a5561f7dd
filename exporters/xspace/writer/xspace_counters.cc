#include "xspace/writer/xspace_counters.h"

#include <algorithm>
#include <cmath>

#include "rows/memory_totals.h"

namespace stepscope {
namespace {

enum Counter : uint8_t {
  kAllocatedMb,
  kReservedMb,
  kSmClock,
  kMemoryClock,
  kPower,
  kTemperature,
  kPcieSent,
  kPcieReceived,
  kNvlinkSent,
  kNvlinkReceived,
  kFreeMb,
  kSmsActive,
  kTensorCoresActive,
  kMemoryBandwidth,
};
constexpr const char* kCounterNames[] = {"allocated memory (MB)",
                                         "reserved memory (MB)",
                                         "SM clock (MHz)",
                                         "memory clock (MHz)",
                                         "power (W)",
                                         "temperature (C)",
                                         "PCIe sent (GB/s)",
                                         "PCIe received (GB/s)",
                                         "NVLink sent (GB/s)",
                                         "NVLink received (GB/s)",
                                         "free memory (MB)",
                                         "SMs active (%)",
                                         "Tensor Cores active (%)",
                                         "memory bandwidth (%)"};

// The most points per counter; a screen cannot show more.
constexpr size_t kMostMemoryPoints = 20'000;

}  // namespace

// XProf draws an event of the line _counters_ as a point of the counter with
// the event's name. The event's only stat is the value.
XCounters::XCounters(const XContext& context, int32_t device, XNames* names)
    : context_(context), device_(device), names_(*names) {
  AddSamples();
  AddMemory();
  std::stable_sort(
      points_.begin(), points_.end(),
      [](const Point& a, const Point& b) { return a.time_ns < b.time_ns; });
}

void XCounters::AddSamples() {
  for (const DeviceSample& sample : context_.trace().device_samples()) {
    if (sample.device != device_) continue;
    const auto add = [&](Counter counter, auto value, double scale) {
      const auto number = static_cast<double>(value);
      if (number < 0 || !std::isfinite(number)) return;
      points_.push_back({sample.time_ns, number * scale, counter});
    };
    add(kSmClock, sample.sm_clock_mhz, 1);
    add(kMemoryClock, sample.memory_clock_mhz, 1);
    add(kPower, sample.power_mw, 1e-3);
    add(kTemperature, sample.temperature_c, 1);
    add(kPcieSent, sample.pcie_sent_bytes_per_s, 1e-9);
    add(kPcieReceived, sample.pcie_received_bytes_per_s, 1e-9);
    add(kNvlinkSent, sample.nvlink_sent_bytes_per_s, 1e-9);
    add(kNvlinkReceived, sample.nvlink_received_bytes_per_s, 1e-9);
    add(kFreeMb, sample.free_bytes, 1e-6);
    add(kSmsActive, sample.sm_active_frac, 100);
    add(kTensorCoresActive, sample.tensor_active_frac, 100);
    add(kMemoryBandwidth, sample.dram_frac, 100);
  }
}

// Long tables are thinned to every n-th event. XProf's memory page still has
// all events.
void XCounters::AddMemory() {
  const auto& events = context_.trace().allocations();
  const size_t stride = events.size() / kMostMemoryPoints + 1;
  // Totals depend on all events, so the events left out are counted, too.
  MemoryTotals totals(context_.trace());
  for (RowId row = 0; row < events.size(); ++row) {
    const MemoryTotals::Totals now = totals.After(row);
    if (events[row].device_type == 0 || events[row].device != device_ ||
        row % stride != 0) {
      continue;
    }
    points_.push_back({events[row].time_ns,
                       static_cast<double>(now.allocated_bytes) * 1e-6,
                       kAllocatedMb});
    if (now.reserved_bytes > 0) {
      points_.push_back({events[row].time_ns,
                         static_cast<double>(now.reserved_bytes) * 1e-6,
                         kReservedMb});
    }
  }
}

void XCounters::Event(size_t i, XEventBytes& event) const {
  const Point& point = points_[i];
  const char* name = kCounterNames[point.counter];
  event.Start(names_.Event(name),
              std::max(point.time_ns - context_.begin_ns(), int64_t{0}), 0);
  event.Counter(names_.Text(name), point.value);
}

}  // namespace stepscope
