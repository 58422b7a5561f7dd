// make_logdir DIR: log directories of simulated training runs, laid out as a
// Profile would, for the viewers to open. Prints, as JSON, what they must show.
//
//   DIR/cpu     one process, no GPU
//   DIR/gpu     one process, one GPU
//   DIR/ranks   two ranks with a GPU each and an all-reduce per step
//   DIR/random  made-up rows of every kind, hostile names included
#include <stepscope/export.h>
#include <stepscope/logdir.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "support/random_trace.h"
#include "support/simulated_training.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

constexpr char kRun[] = "2025_11_21_04_40_00";

// Writes the three files of one rank. False, with a message, if one fails.
bool WriteRank(const Trace& trace, const std::string& log_dir) {
  const int64_t begin_ns = trace.run().window_begin_ns;
  const std::vector<Annotation> annotations = {
      {.row = "findings",
       .name = "sync-data-loading",
       .text = "Batches are made on the <training> thread & waited for",
       .severity = Severity::kWarning},
      {.row = "findings",
       .name = "waits for a batch",
       .text = "",
       .begin_ns = begin_ns + 1'000,
       .end_ns = begin_ns + 8'000'000,
       .severity = Severity::kWarning},
  };
  const LogPaths paths =
      PathsFor(log_dir, kRun, "testhost", trace.run().rank, trace.run().cycle);
  const std::pair<Format, std::string> files[] = {
      {Format::kChromeTb, paths.chrome_tb},
      {Format::kChromeKineto, paths.chrome_kineto},
      {Format::kXSpace, paths.xspace}};
  for (const auto& [format, path] : files) {
    fs::create_directories(fs::path(path).parent_path());
    const absl::Status status = WriteTrace(trace, annotations, format, path);
    if (!status.ok()) {
      std::fprintf(stderr, "make_logdir: %s\n",
                   std::string(status.message()).c_str());
      return false;
    }
  }
  return true;
}

double MeanStepMs(const Trace& trace) {
  double sum_ms = 0;
  for (const Step& step : trace.steps())
    sum_ms += static_cast<double>(step.end_ns - step.begin_ns) * 1e-6;
  return trace.steps().empty()
             ? 0
             : sum_ms / static_cast<double>(trace.steps().size());
}

int Main(const std::string& dir) {
  std::printf("{\n");
  for (bool gpu : {false, true}) {
    const Trace trace = SimulatedTraining({.gpu = gpu, .steps = 4});
    const char* name = gpu ? "gpu" : "cpu";
    if (!WriteRank(trace, dir + "/" + name)) return 1;
    std::printf("  \"%s\": {\"steps\": %zu, \"mean_ms\": %.6f},\n", name,
                trace.steps().size(), MeanStepMs(trace));
  }
  for (int32_t rank = 0; rank < 2; ++rank) {
    const Trace trace =
        SimulatedTraining({.gpu = true,
                           .rank = rank,
                           .world_size = 2,
                           .loader_ns = 8'000'000 + rank * 500'000});
    if (!WriteRank(trace, dir + "/ranks")) return 1;
  }
  const Trace random = RandomTrace({.seed = 7, .bad_utf8 = true});
  if (!WriteRank(random, dir + "/random")) return 1;
  std::printf("  \"random\": {\"steps\": %zu}\n}\n", random.steps().size());
  return 0;
}

}  // namespace
}  // namespace stepscope

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_logdir DIR\n");
    return 2;
  }
  return stepscope::Main(argv[1]);
}
