#include "measure.h"

#include <malloc.h>
#include <stepscope/read.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace stepscope::bench {
namespace {

// Returns a field of /proc/self/status in bytes.
double StatusBytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == field && file >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace

MemoryMeter::MemoryMeter() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts here
  before_ = StatusBytes("VmRSS:");
}

Memory MemoryMeter::Read() const {
  Memory memory;
  memory.peak_bytes = StatusBytes("VmHWM:") - before_;
  malloc_trim(0);
  memory.kept_bytes = StatusBytes("VmRSS:") - before_;
  return memory;
}

void Fail(const std::string& what) {
  std::fprintf(stderr, "bench: %s\n", what.c_str());
  std::exit(1);
}

Trace ReadOrFail(const std::string& path) {
  absl::StatusOr<Trace> trace = ReadTrace(path);
  if (!trace.ok()) Fail(std::string(trace.status().message()));
  return *std::move(trace);
}

std::string ShortName(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  name.resize(std::min(name.find('.'), name.size()));
  return name;
}

int64_t EventsOf(const Trace& trace) {
  return static_cast<int64_t>(
      trace.steps().size() + trace.ranges().size() + trace.ops().size() +
      trace.runtime_calls().size() + trace.kernels().size() +
      trace.copies().size() + trace.memsets().size() + trace.syncs().size() +
      trace.overheads().size() + trace.python_frames().size() +
      trace.allocations().size() + trace.communications().size() +
      trace.device_memory().size() + trace.device_samples().size());
}

void AddSpeed(const std::string& name, const std::string& unit, double amount,
              const std::vector<double>& seconds, double bound,
              Results& results) {
  // A Result has an upper bound, so the row is the time per unit of work.
  std::vector<double> per_unit;
  for (double s : seconds) per_unit.push_back(s / amount);
  results.Add({.name = name,
               .unit = "s per " + unit,
               .ours = Median(per_unit),
               .limit = 1 / bound,
               .repetitions = static_cast<int>(seconds.size()),
               .spread = Spread(per_unit),
               .bound = 1 / bound,
               .bound_is_absolute = true});
  std::printf("  %s: %.1f %s per s, bound: at least %.1f\n", name.c_str(),
              1 / Median(per_unit), unit.c_str(), bound);
}

}  // namespace stepscope::bench
