// make_logdir DIR [TRACE...]: writes log directories with the layout of a
// Profile, for the viewers to open. Prints what they must show as JSON.
//
//   DIR/cpu     simulated training, one process, no GPU
//   DIR/gpu     one process, one GPU
//   DIR/ranks   two ranks with a GPU each and an all-reduce per step
//   DIR/random  made-up rows of every kind, hostile names included
//   DIR/NAME    one per TRACE; NAME is its file name up to the first dot
#include <stepscope/export.h>
#include <stepscope/logdir.h>
#include <stepscope/read.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "run_figures.h"
#include "support/random_trace.h"
#include "support/simulated_training.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

constexpr char kRun[] = "2025_11_21_04_40_00";

// Writes the three files of one rank. Returns false and prints a message on
// failure.
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

// Writes the log directory DIR/`name` and prints what it must show.
bool WriteRun(const Trace& trace, const std::string& dir,
              const std::string& name) {
  static bool is_first = true;
  if (!WriteRank(trace, dir + "/" + name)) return false;
  std::printf("%s  \"%s\": %s", std::exchange(is_first, false) ? "" : ",\n",
              name.c_str(), RunFigures(trace).c_str());
  return true;
}

bool WriteSimulated(const std::string& dir) {
  for (bool gpu : {false, true}) {
    const Trace trace = SimulatedTraining({.gpu = gpu, .steps = 4});
    if (!WriteRun(trace, dir, gpu ? "gpu" : "cpu")) return false;
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Trace trace =
        SimulatedTraining({.gpu = true, .rank = rank, .world_size = 2});
    if (!WriteRank(trace, dir + "/ranks")) return false;
  }
  return WriteRun(RandomTrace({.seed = 7, .bad_utf8 = true}), dir, "random");
}

bool WriteReal(const std::string& dir, const std::string& path) {
  const absl::StatusOr<Trace> trace = ReadTrace(path);
  if (!trace.ok()) {
    std::fprintf(stderr, "make_logdir: %s\n",
                 std::string(trace.status().message()).c_str());
    return false;
  }
  std::string name = fs::path(path).filename().string();
  name.resize(std::min(name.size(), name.find('.')));
  return WriteRun(*trace, dir, name);
}

int Main(const std::string& dir, const std::vector<std::string>& traces) {
  std::printf("{\n");
  if (!WriteSimulated(dir)) return 1;
  for (const std::string& path : traces)
    if (!WriteReal(dir, path)) return 1;
  std::printf("\n}\n");
  return 0;
}

}  // namespace
}  // namespace stepscope

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: make_logdir DIR [TRACE...]\n");
    return 2;
  }
  return stepscope::Main(argv[1], {argv + 2, argv + argc});
}
