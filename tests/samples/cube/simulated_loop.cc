// A program that trains in simulated time on two cores (tests/analysis/
// simulator.h): what its flags do to a step is worked out by code that replay
// shares nothing with, and a profile of it is a real recording.
//   --threads N, --workers N    as the sample's
//   --pinned                    does nothing, and replay does not know it
#include <stepscope/analysis.h>
#include <stepscope/export.h>
#include <stepscope/logdir.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "analysis/simulator.h"
#include "cube/cube.h"
#include "samples/fake_flags.h"

namespace {

stepscope::LoopRun Train(const Flags& flags) {
  return stepscope::Simulate({.steps = 6,
                              .warmup = 6,
                              .batch_ms = 20,
                              .ops = stepscope::Ops(10, 4),
                              .threads = Number(flags, "--threads", 1),
                              .workers = Number(flags, "--workers", 0),
                              .cores = 2});
}

void WriteTimes(const Flags& flags, double step_ms) {
  std::ofstream file(flags.at("--json"));
  file << "{\"step_ms\": [";
  const int steps = Number(flags, "--steps", 10);
  for (int i = 0; i < steps; ++i) {
    // They jitter by up to 1 %.
    file << (i == 0 ? "" : ", ") << step_ms * (1 + 0.005 * (i % 5 - 2));
  }
  file << "], \"warm_steps\": " << Number(flags, "--warm-steps", 3)
       << ", \"batch\": 32}\n";
}

absl::Status WriteProfile(const stepscope::Trace& trace,
                          const std::string& log_dir) {
  const stepscope::LogPaths paths =
      stepscope::PathsFor(log_dir, "run", "host", 0, 0);
  for (const std::string& path : {paths.chrome_kineto, paths.advice}) {
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
  }
  absl::Status written = stepscope::WriteTrace(
      trace, {}, stepscope::Format::kChromeKineto, paths.chrome_kineto);
  if (!written.ok()) return written;
  return stepscope::WriteText(stepscope::ToJson(stepscope::Analyze(trace)),
                              paths.advice);
}

absl::Status Accepts(const std::vector<std::string>&) {
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--sweep") {
    return cube::SweepMain({argv + 2, argv + argc}, Accepts);
  }
  const Flags flags = ReadFlags(argc, argv);
  const stepscope::LoopRun run = Train(flags);
  if (flags.contains("--json")) WriteTimes(flags, run.mean_step_ms);
  if (flags.contains("--no-profile")) return 0;
  const absl::Status written = WriteProfile(run.trace, flags.at("--log-dir"));
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.ToString().c_str());
  return written.ok() ? 0 : 1;
}
