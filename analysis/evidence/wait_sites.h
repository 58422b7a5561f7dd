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

// Fills `found` with where its waits are, with examples, and with how much of
// the waiting may be for other ranks, which is said where the gain is a bound.
void DescribeWaits(const AnalysisContext& context, const WaitFilter& filter,
                   Found& found);

// "The GPU has work meanwhile, so there is little or nothing to win." for the
// case that the gain is too small to report: the predicted one, or half of
// `found.bound_ns`, which must be set.
void ExplainSmallGain(const AnalysisContext& context, const WaitSums& sums,
                      Found& found);

}  // namespace stepscope
