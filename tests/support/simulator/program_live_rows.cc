#include "support/simulator/program_live_rows.h"

#include <cmath>
#include <cstdlib>
#include <string>

namespace stepscope::simulator {
namespace {

int64_t SettingOf(const Machine& machine, const char* name, int64_t other) {
  const auto found = machine.settings.find(name);
  return found == machine.settings.end() ? other
                                         : std::atoll(found->second.c_str());
}

// Returns the sample at the end of the `number`-th recorded step.
DeviceSample SampleOf(const Machine& machine, int rank, int number,
                      int64_t time_ns) {
  const auto bytes = [](double amount) {
    return amount < 0 ? int64_t{-1} : std::llround(amount);
  };
  const bool throttled =
      number >= machine.throttle_after &&
      (machine.throttle_rank < 0 || machine.throttle_rank == rank);
  DeviceSample sample{.time_ns = time_ns};
  sample.sm_clock_mhz = static_cast<int32_t>(
      throttled ? 1980 / (1 + machine.throttle_frac) : 1980);
  sample.throttle_reasons = throttled ? machine.throttle_reasons : 0;
  if (machine.allocated < 0) return sample;
  sample.total_bytes = bytes(machine.device_bytes);
  sample.allocated_bytes = bytes(machine.allocated);
  sample.reserved_bytes =
      bytes(machine.reserved + number * machine.reserved_growth);
  sample.inactive_split_bytes = bytes(machine.stuck);
  sample.alloc_retries = machine.retries;
  sample.out_of_memory = 0;
  return sample;
}

}  // namespace

void AddLiveRows(const Machine& machine, const RankCode& code,
                 const std::vector<Rank::Usage>& usage, int device,
                 double clock_ns, TraceBuilder& builder) {
  const auto host = [&](double ns) { return SinceEpoch(ns + clock_ns); };

  if (machine.has_loader) {
    builder.Add(Loader{.name = builder.Intern(machine.loader_name),
                       .kind = builder.Intern(
                           machine.workers > 0 ? "processes" : "in-process"),
                       .workers = machine.workers,
                       .batch_size = machine.batch_size});
  }
  for (const Row& row : code.rows) {
    if (row.is != RowIs::kStep || row.step < machine.warmup) continue;
    Settings settings{.step = row.step, .time_ns = host(row.begin)};
    settings.grad_mode = SettingOf(machine, "grad_mode", 1);
    settings.inference_mode = SettingOf(machine, "inference_mode", 0);
    settings.autocast_cuda = SettingOf(machine, "autocast_cuda", 0);
    settings.cudnn_enabled = SettingOf(machine, "cudnn_enabled", 1);
    settings.cudnn_benchmark = SettingOf(machine, "cudnn_benchmark", 1);
    settings.deterministic = SettingOf(machine, "deterministic", 0);
    settings.tf32_cublas = SettingOf(machine, "tf32_cublas", 1);
    settings.tf32_cudnn = SettingOf(machine, "tf32_cudnn", 1);
    settings.anomaly_mode = SettingOf(machine, "anomaly_mode", 0);
    settings.intra_op_threads = machine.threads;
    settings.matmul_precision =
        builder.Intern(settings.tf32_cublas == 1 ? "high" : "highest");
    builder.Add(settings);
    if (machine.samples) {
      DeviceSample sample =
          SampleOf(machine, device, row.step - machine.warmup, host(row.end));
      sample.step = row.step;
      sample.device = device;
      builder.Add(sample);
    }
    const size_t i = static_cast<size_t>(row.step);
    if (i + 1 >= usage.size()) continue;
    builder.Add(HostUsage{
        .step = row.step,
        .begin_ns = host(row.begin),
        .end_ns = host(row.end),
        .run_delay_ns =
            std::llround(usage[i + 1].delayed_ns - usage[i].delayed_ns),
        .loader_cpu_ns =
            std::llround(usage[i + 1].workers_cpu_ns - usage[i].workers_cpu_ns),
        .loader_workers = machine.workers});
  }
}

}  // namespace stepscope::simulator
