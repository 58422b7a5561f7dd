// The groups of rows, in the order they run.
#pragma once

#include <string>

#include "results.h"

namespace stepscope::bench {

struct BenchOptions {
  int rounds = 15;
  std::string sample_trace;  // a Chrome trace of the ResNet-18 sample
  std::string scratch_dir;
  std::string only;  // rows whose name begins so; "" all
};

void RunOpRows(const BenchOptions& options, Results& results);
void RunExportRows(const BenchOptions& options, Results& results);
// REQUIRES: RunOpRows ran on the same results, op_sample
// included.
void RunStepRows(const BenchOptions& options, Results& results);

inline bool Wanted(const BenchOptions& options, const std::string& name) {
  return name.starts_with(options.only);
}

}  // namespace stepscope::bench
