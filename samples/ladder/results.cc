#include "results.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "chart.h"
#include "measure/run_times.h"
#include "table.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr char kCpuPart[] = "ladder on a CPU";
constexpr char kGpuPart[] = "ladder on a GPU";

// The part of a device before its ladder was measured.
std::string EmptyPart(const std::string& name, const std::string& command,
                      const std::string& device) {
  return "<!-- " + name + " begin: written by `" + command +
         "`, not by hand -->\nNot yet run on " + device + ".\n<!-- " + name +
         " end -->\n";
}

std::string NewFile() {
  return "# The ladder: ResNet-18, rung by rung\n\n"
         "Each rung adds its flags to those below it and is measured against "
         "the rung below by interleaved runs. The finding that led to it is "
         "the one in the report of the rung below whose fix it is; its "
         "prediction was made before the rung was run. Factors are of "
         "samples/s. A rung that is not faster is taken back.\n\n"
         "\"step recorded\" is one recording, made minutes before the timed "
         "runs: not their step plus the cost of recording. \"measured\" "
         "compares with the rung below, run again in turn: samples/s of two "
         "rows, taken minutes apart, do not divide to it. \"-\": the report "
         "below asked for no such change. No rungs: bias before BatchNorm, "
         "validation with gradients and the other bad habits, which the "
         "baseline does not have (`climb --bad-habits` starts with them); "
         "gradient accumulation and checkpointing, which buy memory for time; "
         "`--sgd foreach`, which `--sgd fused` takes further.\n\n"
         "## On a CPU\n\n" +
         EmptyPart(kCpuPart, "ladder", "a CPU") + "\n## On a GPU\n\n" +
         EmptyPart(kGpuPart, "ladder --device cuda", "a GPU");
}

// Through a second file, so that a full disk does not cost the old one.
absl::Status Write(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.string() + ".new";
  std::ofstream file(temporary);
  file << text;
  file.close();
  std::error_code code;
  if (file) fs::rename(temporary, path, code);
  if (file && !code) return absl::OkStatus();
  return absl::UnavailableError(
      "cannot write " + path.string() + ": " +
      (code ? code.message() : std::string(std::strerror(errno))));
}

std::string Chart(const Ladder& ladder) {
  std::vector<Bar> bars;
  for (const Taken& taken : ladder.rungs) {
    if (!taken.failed.empty()) continue;
    bars.push_back({.label = taken.rung.name,
                    .value = taken.samples_per_s,
                    .low = taken.samples_per_s_low,
                    .high = taken.samples_per_s_high,
                    .faint = !taken.kept});
  }
  return DrawBars("ResNet-18: samples per second, rung by rung", bars);
}

}  // namespace

absl::Status WriteResults(const Ladder& ladder, resnet::DeviceKind device,
                          const std::string& path, const std::string& date,
                          const std::string& command) {
  const bool cpu = device == resnet::DeviceKind::kCpu;
  const std::string chart = cpu ? "ladder_cpu.svg" : "ladder_gpu.svg";
  absl::StatusOr<std::string> old = measure::ReadFile(path);
  if (!old.ok() && !absl::IsNotFound(old.status())) return old.status();
  absl::StatusOr<std::string> text = ReplaceMarked(
      old.ok() ? *old : NewFile(), cpu ? kCpuPart : kGpuPart,
      ToMarkdown(ladder, {.date = date, .command = command, .chart = chart}));
  if (!text.ok()) return text.status();
  const absl::Status drawn =
      Write(fs::path(path).parent_path() / chart, Chart(ladder));
  return drawn.ok() ? Write(path, *text) : drawn;
}

}  // namespace ladder
