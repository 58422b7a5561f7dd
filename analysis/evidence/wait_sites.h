// The places in a program where it waits for the GPU, worst first, and what a
// finding about waits has in common whatever the rule.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

struct WaitSite {
  std::string chain;          // "sparse_data_dist > aten::item"
  std::string source;         // "train.py(31): step"; "" if unknown
  double blocked_ns = 0;      // per steady step
  double per_step = 0;        // calls
  std::vector<size_t> waits;  // in AnalysisContext::waits, the longest first
};

// Waits in steady steps, by place, most blocked first.
std::vector<WaitSite> SitesOf(const AnalysisContext& context,
                              const WaitFilter& filter);

// Fills `finding` with where its waits are, examples, and the gain of removing
// them: as replay predicts it, else at most what SumWaits says. `edit` is what
// the fix does.
Finding DescribeWaits(const AnalysisContext& context, const WaitFilter& filter,
                      const Edit& edit, Finding finding);

// "The GPU has work meanwhile, so nothing is won ..." where the gain that was
// found is below what is worth telling; else "".
std::string WhyNoGain(const AnalysisContext& context, const WaitSums& sums,
                      const Finding& finding);

}  // namespace stepscope
