#include "drawing/page_details.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "drawing/device_tables.h"
#include "drawing/memory_curve.h"
#include "drawing/step_lanes.h"

namespace stepscope {
namespace {

constexpr size_t kPoints = 240;  // of a curve
constexpr size_t kDevices = 8;

// Returns every n-th row, with n such that at most kPoints are left.
template <typename Row>
std::vector<Row> Thinned(std::vector<Row> rows) {
  const size_t every = (rows.size() + kPoints - 1) / kPoints;
  if (every < 2) return rows;
  std::vector<Row> kept;
  for (size_t i = 0; i < rows.size(); i += every) kept.push_back(rows[i]);
  return kept;
}

// Hardware counters are sampled a thousand times per second and clocks twenty
// times, so each kind is thinned separately.
std::vector<PageSample> ThinnedByKind(std::vector<PageSample> samples) {
  const auto counts = [](const PageSample& sample) {
    return sample.sm_active_frac >= 0 || sample.tensor_active_frac >= 0 ||
           sample.dram_frac >= 0;
  };
  std::vector<PageSample> counters, others;
  for (const PageSample& sample : samples) {
    (counts(sample) ? counters : others).push_back(sample);
  }
  samples = Thinned(std::move(others));
  for (const PageSample& sample : Thinned(std::move(counters))) {
    samples.push_back(sample);
  }
  std::ranges::stable_sort(samples, {}, &PageSample::time_ms);
  return samples;
}

void AddDevices(const Trace& trace, PageDetails& details) {
  std::map<int32_t, PageDevice> devices;
  // -1 means unknown in any unit, so it is not scaled.
  const auto scaled = [](int32_t value, double unit) {
    return value < 0 ? -1 : value * unit;
  };
  for (const DeviceSample& sample : trace.device_samples()) {
    PageDevice& device = devices[sample.device];
    device.ordinal = sample.device;
    if (sample.power_limit_mw > 0) {
      device.power_limit_w = sample.power_limit_mw * 1e-3;
    }
    device.samples.push_back(
        {.time_ms = (sample.time_ns - trace.device_samples()[0].time_ns) * 1e-6,
         .sm_clock_mhz = scaled(sample.sm_clock_mhz, 1),
         .power_w = scaled(sample.power_mw, 1e-3),
         .temperature_c = scaled(sample.temperature_c, 1),
         .sm_active_frac = static_cast<double>(sample.sm_active_frac),
         .tensor_active_frac = static_cast<double>(sample.tensor_active_frac),
         .dram_frac = static_cast<double>(sample.dram_frac),
         .allocated_bytes = sample.allocated_bytes,
         .reserved_bytes = sample.reserved_bytes});
  }
  for (auto& [ordinal, device] : devices) {
    if (details.devices.size() == kDevices) break;
    device.samples = ThinnedByKind(std::move(device.samples));
    details.devices.push_back(std::move(device));
  }
}

void AddHost(const Trace& trace, PageDetails& details) {
  for (const HostUsage& usage : trace.host_usage()) {
    const auto ns = static_cast<double>(usage.end_ns - usage.begin_ns);
    if (ns <= 0) continue;
    // CPU time / elapsed time: the cores used, or the share of one thread.
    const auto share = [&](int64_t value, double unit = 1) {
      return value < 0 ? -1 : static_cast<double>(value) / ns * unit;
    };
    details.host.push_back(
        {.step = usage.step,
         .process_cores = share(usage.process_cpu_ns),
         .training_thread_frac = share(usage.training_thread_cpu_ns),
         .run_delay_frac = share(usage.run_delay_ns),
         .loader_cores = share(usage.loader_cpu_ns),
         .read_bytes_per_s = share(usage.read_bytes, 1e9)});
  }
  details.host = Thinned(std::move(details.host));
  constexpr size_t kLoaders = 20;
  for (const Loader& loader : trace.loaders()) {
    if (details.loaders.size() == kLoaders) break;
    details.loaders.push_back(
        {.name = std::string(trace.name(loader.name).substr(0, 200)),
         .kind = std::string(trace.name(loader.kind).substr(0, 200)),
         .workers = loader.workers,
         .batch_size = loader.batch_size});
  }
}

}  // namespace

PageDetails DrawDetails(const AnalysisContext& context, const Report& report) {
  PageDetails details;
  // The only rank of a job needs no number.
  const RunInfo& run = context.trace.run();
  details.rank = run.world_size == 1 ? -1 : run.rank;
  DrawSteps(context, report, details);
  ListKernels(context, details);
  ListCopies(context, details);
  ListCollectives(context, details);
  DrawMemory(context.trace, details);
  AddDevices(context.trace, details);
  AddHost(context.trace, details);
  return details;
}

}  // namespace stepscope
