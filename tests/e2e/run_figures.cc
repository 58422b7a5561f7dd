#include "run_figures.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace stepscope {
namespace {

using Intervals = std::vector<std::pair<int64_t, int64_t>>;

int64_t UnionNs(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  int64_t sum_ns = 0;
  int64_t end_ns = INT64_MIN;
  for (const auto& [begin, end] : intervals) {
    sum_ns += std::max<int64_t>(0, end - std::max(begin, end_ns));
    end_ns = std::max(end_ns, end);
  }
  return sum_ns;
}

struct Numbers {
  std::string json = "{";
  void Add(const std::string& key, double value) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.3f", value);
    AddText(key, text);
  }
  void AddText(const std::string& key, const std::string& value) {
    json += (json.size() == 1 ? "\"" : ", \"") + key + "\": " + value;
  }
};

bool IsCollective(std::string_view name) {
  return name.find("nccl") != std::string_view::npos ||
         name.find("rccl") != std::string_view::npos;
}

std::string DeviceFigures(const Trace& trace, int32_t device) {
  Intervals all, work, collectives, rest;
  double sum_ns = 0, count = 0, collective_count = 0, occupancy_ns = 0,
         known_ns = 0;
  double tensor_core_ns = 0, flops = 0;
  for (const Kernel& kernel : trace.kernels()) {
    if (kernel.device != device) continue;
    const bool is_collective = IsCollective(trace.name(kernel.name));
    const std::pair at = {kernel.begin_ns, kernel.end_ns};
    all.push_back(at);
    work.push_back(at);
    (is_collective ? collectives : rest).push_back(at);
    sum_ns += static_cast<double>(at.second - at.first);
    count += 1;
    collective_count += is_collective;
    const auto length_ns = static_cast<double>(at.second - at.first);
    if (TraitsOfKernel(trace.name(kernel.name)).tensor_cores ==
        TensorCores::kYes) {
      tensor_core_ns += length_ns;
    }
    if (kernel.occupancy_frac >= 0) {
      known_ns += length_ns;
      occupancy_ns += length_ns * kernel.occupancy_frac;
    }
  }
  // Each op call costs once, however many kernels it launched.
  std::set<RowId> calls;
  for (const Kernel& kernel : trace.kernels()) {
    if (kernel.device != device || kernel.op == kNone) continue;
    const RowId multiplying = MultiplyingOp(trace, kernel.op);
    calls.insert(multiplying == kNone ? kernel.op : multiplying);
  }
  for (RowId call : calls) flops += std::max(0.0, CostOf(trace, call).flops);
  std::map<std::string, std::pair<int64_t, int64_t>> copies;  // count, bytes
  for (const Copy& copy : trace.copies()) {
    if (copy.device != device) continue;
    work.push_back({copy.begin_ns, copy.end_ns});
    const std::string_view name = trace.name(copy.name);
    for (const char* direction : {"HtoD", "DtoH", "DtoD"}) {
      if (name.find(direction) == std::string_view::npos) continue;
      ++copies[direction].first;
      copies[direction].second += std::max<int64_t>(0, copy.bytes);
    }
  }
  for (const Memset& set : trace.memsets())
    if (set.device == device) work.push_back({set.begin_ns, set.end_ns});
  double work_ns = 0;
  for (const auto& [begin, end] : work)
    work_ns += static_cast<double>(end - begin);
  Numbers out;
  out.Add("kernels", count);
  out.Add("work", static_cast<double>(work.size()));
  out.Add("work_sum_us", work_ns * 1e-3);
  out.Add("kernel_sum_us", sum_ns * 1e-3);
  out.Add("kernel_busy_us", static_cast<double>(UnionNs(all)) * 1e-3);
  out.Add("gpu_busy_us", static_cast<double>(UnionNs(work)) * 1e-3);
  out.Add("collectives", collective_count);
  out.Add("collective_busy_us",
          static_cast<double>(UnionNs(collectives)) * 1e-3);
  out.Add("collective_exposed_us",
          static_cast<double>(UnionNs(all) - UnionNs(rest)) * 1e-3);
  out.Add("tensor_core_pct", sum_ns > 0 ? tensor_core_ns / sum_ns * 100 : 0);
  out.Add("flops", flops);
  if (known_ns > 0) out.Add("occupancy_pct", occupancy_ns / known_ns * 100);
  for (const auto& [direction, sums] : copies) {
    out.Add(direction, static_cast<double>(sums.first));
    out.Add(direction + "_bytes", static_cast<double>(sums.second));
  }
  return out.json + "}";
}

// Returns the mean of the spans that tile the timeline: each ends with the last
// work on `device` that its calls launched, and starts where the previous span
// ended.
double TiledMeanMs(const Trace& trace, int32_t device) {
  if (trace.steps().empty()) return 0;
  std::vector<int64_t> ends_ns;
  for (const Step& step : trace.steps()) ends_ns.push_back(step.end_ns);
  const auto see = [&](const DeviceWork& work) {
    if (work.device != device) return;
    const int64_t at_ns = work.call == kNone
                              ? work.begin_ns
                              : trace.runtime_calls()[work.call].begin_ns;
    for (size_t i = 0; i < ends_ns.size(); ++i) {
      const Step& step = trace.steps()[i];
      if (step.begin_ns <= at_ns && at_ns < step.end_ns)
        ends_ns[i] = std::max(ends_ns[i], work.end_ns);
    }
  };
  for (const Kernel& kernel : trace.kernels()) see(kernel);
  for (const Copy& copy : trace.copies()) see(copy);
  for (const Memset& set : trace.memsets()) see(set);
  const int64_t last_ns = *std::max_element(ends_ns.begin(), ends_ns.end());
  return static_cast<double>(last_ns - trace.steps()[0].begin_ns) * 1e-6 /
         static_cast<double>(ends_ns.size());
}

}  // namespace

std::string RunFigures(const Trace& trace) {
  Numbers out;
  double sum_ns = 0, waited_ns = 0;
  for (const Step& step : trace.steps()) {
    sum_ns += static_cast<double>(step.end_ns - step.begin_ns);
    for (const Range& range : trace.ranges()) {
      if (range.kind == RangeKind::kLoader && range.thread == step.thread &&
          step.begin_ns <= range.begin_ns && range.begin_ns < step.end_ns)
        waited_ns += static_cast<double>(range.end_ns - range.begin_ns);
    }
  }
  const auto steps = static_cast<double>(trace.steps().size());
  out.Add("steps", steps);
  out.Add("mean_ms", steps > 0 ? sum_ns * 1e-6 / steps : 0);
  out.Add("loader_ms", steps > 0 ? waited_ns * 1e-6 / steps : 0);
  std::map<std::string, int64_t> peaks;  // bytes in use, by device
  for (const Allocation& event : trace.allocations()) {
    const std::string device =
        event.device_type == 0 ? "CPU" : "GPU" + std::to_string(event.device);
    peaks[device] = std::max(peaks[device], event.total_allocated_bytes);
  }
  for (const auto& [device, bytes] : peaks)
    out.Add("peak_" + device, static_cast<double>(bytes));
  out.Add("allocations", static_cast<double>(trace.allocations().size()));
  std::set<int32_t> devices;
  for (const Kernel& kernel : trace.kernels()) devices.insert(kernel.device);
  for (const Copy& copy : trace.copies()) devices.insert(copy.device);
  for (int32_t device : devices) {
    out.Add("tiled_ms_" + std::to_string(device), TiledMeanMs(trace, device));
    out.AddText("gpu" + std::to_string(device), DeviceFigures(trace, device));
  }
  return out.json + "}";
}

}  // namespace stepscope
