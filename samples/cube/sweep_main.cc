#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "cube.h"
#include "report.h"

namespace cube {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kGoOnLater = 3;

constexpr char kHelp[] =
    "Times every combination of some flags, in turn.\n"
    "usage: resnet --sweep --FLAG VALUE,VALUE... [flags of resnet]\n"
    "  A flag with several values is crossed; the first one is the baseline.\n"
    "  Of a flag without a value they are off and on: --channels-last off,on\n"
    "\n"
    "  --sweep-rounds N      runs of each combination (5)\n"
    "  --sweep-steps N       steps per run (24)\n"
    "  --sweep-csv FILE      write every run\n"
    "  --sweep-json FILE     write what was found\n"
    "  --sweep-work DIR      where runs are kept; the same command goes on "
    "from\n"
    "                        there, so empty it after a change of the program\n"
    "                        (runs/cube)\n"
    "  --sweep-limit SECONDS stop after so long, with exit code 3\n";

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "resnet --sweep: %s\n",
               std::string(status.message()).c_str());
  if (absl::IsResourceExhausted(status)) return kGoOnLater;
  return absl::IsInvalidArgument(status) ? kUsage : kFailed;
}

absl::StatusOr<measure::Bench> OpenBench(const Options& options) {
  std::error_code code;
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", code);
  absl::StatusOr<measure::Workload> workload =
      measure::Workload::Find(self.string(), {});
  if (!workload.ok()) return workload.status();
  measure::BenchOptions bench;
  bench.folder = options.folder;
  bench.limit = std::chrono::seconds(options.limit_s);
  bench.say = [](const std::string& text) {
    if (::isatty(STDERR_FILENO) != 0) {
      std::fprintf(stderr, "\r\33[K%.100s", text.c_str());
    }
  };
  return measure::Bench::Open(*std::move(workload), std::move(bench));
}

absl::Status WriteTo(const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError("cannot write " + path);
}

}  // namespace

int SweepMain(const std::vector<std::string>& words, const Accepts& accepts) {
  for (const std::string& word : words) {
    if (word != "--help") continue;
    std::fputs(kHelp, stdout);
    return 0;
  }
  absl::StatusOr<Options> options = ParseOptions(words);
  if (!options.ok()) return Fail(options.status());
  absl::StatusOr<measure::Bench> bench = OpenBench(*options);
  if (!bench.ok()) return Fail(bench.status());
  absl::StatusOr<Measured> measured = MeasureCube(*bench, *options, accepts);
  if (!measured.ok()) return Fail(measured.status());
  if (::isatty(STDERR_FILENO) != 0) std::fputs("\r\33[K", stderr);
  std::fputs(ToText(*measured).c_str(), stdout);
  for (absl::Status s : {WriteTo(options->csv, ToCsv(*measured)),
                         WriteTo(options->json, ToJson(*measured))}) {
    if (!s.ok()) return Fail(s);
  }
  return 0;
}

}  // namespace cube
