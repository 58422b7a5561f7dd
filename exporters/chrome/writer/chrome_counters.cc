// The part of ChromeEventWriter that writes counters, which viewers draw as
// curves: device samples, memory of the allocators, load of the host.
#include <algorithm>
#include <cmath>
#include <string>

#include "chrome/writer/chrome_event_writer.h"
#include "rows/memory_totals.h"

namespace stepscope {
namespace {

// The most points of memory; a screen cannot show more.
constexpr size_t kMostMemoryPoints = 20'000;

}  // namespace

// The value stands under an empty key, as in Kineto's counters.
void ChromeEventWriter::Counter(const char* category, const char* name,
                                std::string_view pid, int64_t time_ns,
                                double value) {
  out_ += ",\n{\"ph\": \"C\", \"cat\": \"";
  out_ += category;
  out_ += "\", \"name\": \"";
  out_ += name;
  out_ += "\", \"pid\": ";
  out_ += pid;
  out_ += ", \"ts\": ";
  AppendMicros(time_ns - base_ns_, out_);
  out_ += ", \"args\": {\"\": ";
  AppendDouble(value, out_);
  out_ += "}}";
}

// Kineto draws CUPTI's counters in a process of this name.
std::string ChromeEventWriter::CounterPid(int32_t device) const {
  std::string pid;
  AppendQuoted((rank_name_.empty() ? "" : rank_name_ + ": ") + "GPU " +
                   std::to_string(device) + " Counters",
               pid);
  return pid;
}

void ChromeEventWriter::WriteCounters() {
  WriteSamples();
  // The plugin makes its own curves of the memory, and has no others.
  if (is_tb()) return;
  WriteMemoryCurves();
  WriteHostLoad();
}

void ChromeEventWriter::WriteSamples() {
  for (const DeviceSample& sample : trace_.device_samples()) {
    const std::string pid = CounterPid(sample.device);
    const auto counter = [&](const char* name, auto given, double scale) {
      const auto value = static_cast<double>(given);
      if (value < 0 || !std::isfinite(value)) return;
      Counter("hardware_counters", name, pid, sample.time_ns, value * scale);
    };
    counter("SM clock (MHz)", sample.sm_clock_mhz, 1);
    counter("memory clock (MHz)", sample.memory_clock_mhz, 1);
    counter("power (W)", sample.power_mw, 1e-3);
    counter("temperature (C)", sample.temperature_c, 1);
    counter("PCIe sent (GB/s)", sample.pcie_sent_bytes_per_s, 1e-9);
    counter("PCIe received (GB/s)", sample.pcie_received_bytes_per_s, 1e-9);
    counter("NVLink sent (GB/s)", sample.nvlink_sent_bytes_per_s, 1e-9);
    counter("NVLink received (GB/s)", sample.nvlink_received_bytes_per_s, 1e-9);
    counter("SMs active (%)", sample.sm_active_frac, 100);
    counter("Tensor Cores active (%)", sample.tensor_active_frac, 100);
    counter("memory bandwidth (%)", sample.dram_frac, 100);
    counter("free memory (MB)", sample.free_bytes, 1e-6);
  }
}

// Returns the training process, or the one with the first thread. Empty if
// there are no threads.
std::string ChromeEventWriter::HostPid() const {
  if (trace_.threads().empty()) return "";
  const RowId thread = trace_.run().training_thread;
  std::string pid;
  AppendInt(
      rows_.FileThread(thread < trace_.threads().size() ? thread : 0).first,
      pid);
  return pid;
}

// Memory of the CPU is drawn in the training process. Long tables are thinned
// to every n-th event.
void ChromeEventWriter::WriteMemoryCurves() {
  const auto events = trace_.allocations();
  const std::string host = HostPid();
  const size_t stride = events.size() / kMostMemoryPoints + 1;
  // Totals depend on all events, so the events left out are counted, too.
  MemoryTotals totals(trace_);
  for (RowId row = 0; row < events.size(); ++row) {
    const MemoryTotals::Totals now = totals.After(row);
    if (row % stride != 0) continue;
    const Allocation& event = events[row];
    const bool on_host = event.device_type == 0;
    const std::string pid = on_host ? host : CounterPid(event.device);
    if (pid.empty()) continue;
    Counter("stepscope", "allocated memory (MB)", pid, event.time_ns,
            static_cast<double>(now.allocated_bytes) * 1e-6);
    if (now.reserved_bytes <= 0) continue;
    Counter("stepscope", "reserved memory (MB)", pid, event.time_ns,
            static_cast<double>(now.reserved_bytes) * 1e-6);
  }
}

// Means over steps, each drawn from the beginning of its step to the end.
void ChromeEventWriter::WriteHostLoad() {
  const std::string pid = HostPid();
  const auto usages = trace_.host_usage();
  if (pid.empty()) return;
  const auto curve = [&](const char* name, int64_t HostUsage::*counted,
                         double scale) {
    // An unused loader or disk needs no curve.
    if (std::ranges::none_of(
            usages, [&](const HostUsage& one) { return one.*counted > 0; })) {
      return;
    }
    for (size_t i = 0; i < usages.size(); ++i) {
      const HostUsage& usage = usages[i];
      const int64_t length_ns = usage.end_ns - usage.begin_ns;
      if (usage.*counted < 0 || length_ns <= 0) continue;
      const double value = static_cast<double>(usage.*counted) /
                           static_cast<double>(length_ns) * scale;
      Counter("stepscope", name, pid, usage.begin_ns, value);
      if (i + 1 == usages.size() || usages[i + 1].begin_ns > usage.end_ns)
        Counter("stepscope", name, pid, usage.end_ns, value);
    }
  };
  curve("CPU time of the process (cores)", &HostUsage::process_cpu_ns, 1);
  curve("training thread on a core (%)", &HostUsage::training_thread_cpu_ns,
        100);
  curve("training thread waits for a core (%)", &HostUsage::run_delay_ns, 100);
  curve("CPU time of the loader (cores)", &HostUsage::loader_cpu_ns, 1);
  // Bytes per nanosecond are GB/s.
  curve("read from storage (MB/s)", &HostUsage::read_bytes, 1e3);
}

}  // namespace stepscope
