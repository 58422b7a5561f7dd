#include "host_decode.h"

#include <span>

#include "proc_file.h"

namespace stepscope {
namespace {

// Returns now - before, or -1 if one of them is unknown or the counter
// restarted.
int64_t Difference(int64_t now, int64_t before) {
  return now < 0 || before < 0 || now < before ? -1 : now - before;
}

// Returns the n-th number of a schedstat text, or -1 if it is unknown. 0 is the
// time on a core, 1 the time waiting for a core. Both are 0 in kernels without
// these statistics. Source: Documentation/scheduler/sched-stats.rst.
int64_t SchedStat(std::string_view text, int n) {
  return NumberAt(text, 0) > 0 ? NumberAt(text, n) : -1;
}

std::span<const WorkerSample> WorkersOf(const HostSamples& samples,
                                        const HostSample& sample) {
  return std::span(samples.workers)
      .subspan(sample.first_worker, sample.worker_count);
}

const WorkerSample* Find(std::span<const WorkerSample> workers,
                         const WorkerSample& worker) {
  for (const WorkerSample& other : workers) {
    if (other.id == worker.id && other.is_process == worker.is_process) {
      return &other;
    }
  }
  return nullptr;
}

// Adds `value`, if it is known, to a sum that is -1 until then.
void AddKnown(int64_t& sum, int64_t value) {
  if (value >= 0) sum = sum < 0 ? value : sum + value;
}

void DecodeWorkers(const HostSamples& samples, const HostSample& before,
                   const HostSample& now, HostUsage& row) {
  const auto workers = WorkersOf(samples, now);
  if (workers.empty()) {
    // If child processes could not be listed, there may be unknown workers.
    if (!now.children_known) return;
    row.loader_workers = 0;
    row.loader_cpu_ns = 0;
    row.loader_read_bytes = 0;
    return;
  }
  // Workers come and go between samples, so each one is compared with its own
  // earlier sample.
  row.loader_workers = static_cast<int32_t>(workers.size());
  for (const WorkerSample& worker : workers) {
    const WorkerSample* const earlier =
        Find(WorkersOf(samples, before), worker);
    const int64_t cpu_ns = NumberAt(samples.at(worker.schedstat), 0);
    const int64_t read = FieldOf(samples.at(worker.io), "read_bytes");
    if (earlier != nullptr) {
      AddKnown(row.loader_cpu_ns,
               Difference(cpu_ns, NumberAt(samples.at(earlier->schedstat), 0)));
      AddKnown(
          row.loader_read_bytes,
          Difference(read, FieldOf(samples.at(earlier->io), "read_bytes")));
    } else if (worker.is_process) {
      // The process started during this step, with its counters at 0.
      AddKnown(row.loader_cpu_ns, cpu_ns);
      AddKnown(row.loader_read_bytes, read);
    }
  }
}

}  // namespace

std::vector<HostUsage> DecodeHostUsage(const HostSamples& samples) {
  std::vector<HostUsage> rows;
  for (size_t i = 1; i < samples.samples.size(); ++i) {
    const HostSample& before = samples.samples[i - 1];
    const HostSample& now = samples.samples[i];
    if (now.step < 0) continue;  // only the state before the next step
    const std::string_view io = samples.at(now.io);
    const std::string_view io_before = samples.at(before.io);
    HostUsage row;
    row.step = now.step;
    row.begin_ns = before.time_ns;
    row.end_ns = now.time_ns;
    row.process_cpu_ns = Difference(now.process_cpu_ns, before.process_cpu_ns);
    row.training_thread_cpu_ns =
        Difference(now.thread_cpu_ns, before.thread_cpu_ns);
    row.involuntary_switches =
        Difference(now.involuntary_switches, before.involuntary_switches);
    row.run_delay_ns = Difference(SchedStat(samples.at(now.schedstat), 1),
                                  SchedStat(samples.at(before.schedstat), 1));
    row.read_bytes =
        Difference(FieldOf(io, "read_bytes"), FieldOf(io_before, "read_bytes"));
    row.write_bytes = Difference(FieldOf(io, "write_bytes"),
                                 FieldOf(io_before, "write_bytes"));
    DecodeWorkers(samples, before, now, row);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace stepscope
