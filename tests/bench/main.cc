// stepscope_bench: prints a table that compares recording cost with Kineto's,
// and writes it as JSON lines. Exits with 0 if every bound is met, and with 3
// if one is missed.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench.h"

namespace {

constexpr const char* kUsage =
    "usage: stepscope_bench [--out FILE] [--rounds N] [--only PREFIX]\n"
    "                       [--sample-trace FILE] [--scratch DIR]\n";

}  // namespace

int main(int argc, char** argv) {
  stepscope::bench::BenchOptions options;
  options.scratch_dir = ".";
  std::string out = "results.jsonl";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 == argc) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    const char* value = argv[++i];
    if (flag == "--out") {
      out = value;
    } else if (flag == "--rounds") {
      options.rounds = std::max(1, std::atoi(value));
    } else if (flag == "--only") {
      options.only = value;
    } else if (flag == "--sample-trace") {
      options.sample_trace = value;
    } else if (flag == "--scratch") {
      options.scratch_dir = value;
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  at::set_num_threads(1);  // pool threads would compete with us
  stepscope::bench::Results results(out);
  stepscope::bench::RunOpRows(options, results);
  stepscope::bench::RunExportRows(options, results);
  stepscope::bench::RunStepRows(options, results);
  return results.missed() == 0 ? 0 : 3;
}
