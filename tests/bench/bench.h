// The groups of rows in the order in which they run.
#pragma once

#include <string>

#include "results.h"

namespace stepscope::bench {

struct BenchOptions {
  int rounds = 15;
  std::string sample_trace;  // a Chrome trace of the ResNet-18 sample
  std::string scratch_dir;
  std::string only;  // prefix of the rows to run; "": all
};

void RunOpRows(const BenchOptions& options, Results& results);
void RunExportRows(const BenchOptions& options, Results& results);
// REQUIRES: RunOpRows() ran with the same `results`, including op_sample.
void RunStepRows(const BenchOptions& options, Results& results);

inline bool Wanted(const BenchOptions& options, const std::string& name) {
  return name.starts_with(options.only);
}

}  // namespace stepscope::bench
