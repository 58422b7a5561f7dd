// Measures what a window costs after it: memory, the time until one Chrome file
// is written, and how long the training thread is blocked.
#include <malloc.h>
#include <stepscope/profile.h>
#include <stepscope/trace.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench.h"
#include "recorders.h"
#include "workloads.h"

namespace stepscope::bench {
namespace {

constexpr int kOps = 300000;

double Seconds(std::chrono::steady_clock::duration passed) {
  return std::chrono::duration<double>(passed).count();
}

// Returns a field of /proc/self/status in bytes, for example "VmRSS:", or
// "VmHWM:" (the peak).
double StatusBytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    double kib = 0;
    if (word == field && file >> kib) return kib * 1024;
  }
  return 0;
}

// Returns the peak memory of recording and stopping, above the memory before.
double PeakBytesPerOp(Recorder recorder) {
  {
    // Makes memory resident that stays resident for good.
    const auto scope = Start(recorder, {});
    AddOps(1, 1000);
    scope->StopAndKeep();
  }
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts here
  const double before = StatusBytes("VmRSS:");
  const auto scope = Start(recorder, {});
  AddOps(1, kOps);
  scope->StopAndKeep();
  return (StatusBytes("VmHWM:") - before) / kOps;
}

double ExportSeconds(Recorder recorder, const std::string& path) {
  const auto scope = Start(recorder, {});
  AddOps(1, kOps);
  const auto begin = std::chrono::steady_clock::now();
  scope->StopAndExport(path);
  const double seconds = Seconds(std::chrono::steady_clock::now() - begin);
  std::filesystem::remove(path);
  return seconds;
}

// Measures the step that ends the active window, as a training loop sees it.
// Another thread writes the files.
double BlockedSeconds(const std::string& dir) {
  size_t ops = 0;
  Profile profile({.log_dir = dir,
                   .name = "bench",
                   .schedule = {.wait = 0, .warmup = 0, .active = 1},
                   .print_report = false,
                   .on_report = [&ops](const Trace& trace, const Report&) {
                     ops = trace.ops().size();
                   }});
  AddOps(1, kOps);
  const auto begin = std::chrono::steady_clock::now();
  profile.Step();
  const double seconds = Seconds(std::chrono::steady_clock::now() - begin);
  if (!profile.Finish().ok() || ops < kOps) {
    std::fprintf(stderr, "bench: stop_blocks recorded %zu operators of %d\n",
                 ops, kOps);
    std::exit(1);
  }
  return seconds;
}

}  // namespace

void RunExportRows(const BenchOptions& options, Results& results) {
  constexpr int kRounds = 5;
  std::vector<double> ours, peer;
  if (Wanted(options, "op_bytes")) {
    for (int round = 0; round < kRounds; ++round) {
      ours.push_back(PeakBytesPerOp(Recorder::kOurs));
      peer.push_back(PeakBytesPerOp(Recorder::kKineto));
    }
    results.Add({.name = "op_bytes",
                 .unit = "bytes",
                 .ours = Median(ours),
                 .peer = Median(peer),
                 .limit = 32,
                 .repetitions = kRounds,
                 .spread = Spread(ours),
                 .bound = 40,
                 .bound_is_absolute = true});
  }
  if (!Wanted(options, "stop_")) return;
  ours.clear();
  peer.clear();
  std::vector<double> blocked;
  const std::string dir = options.scratch_dir + "/bench-log";
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(
        ExportSeconds(Recorder::kOurs, options.scratch_dir + "/ours.json"));
    peer.push_back(
        ExportSeconds(Recorder::kKineto, options.scratch_dir + "/kineto.json"));
    blocked.push_back(BlockedSeconds(dir));
    std::filesystem::remove_all(dir);
  }
  results.Add({.name = "stop_export",
               .unit = "s",
               .ours = Median(ours),
               .peer = Median(peer),
               .repetitions = kRounds,
               .spread = Spread(ours),
               .bound = 0.25});
  results.Add({.name = "stop_blocks",
               .unit = "s",
               .ours = Median(blocked),
               .peer = Median(peer),
               .limit = 0,
               .repetitions = kRounds,
               .spread = Spread(blocked),
               .bound = 0.01});
}

}  // namespace stepscope::bench
