// The places in a program that wait for the GPU, and the parts that the
// findings of all rules about waits have in common. Functions without state:
// safe from any thread.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

struct WaitSite {
  std::string chain;          // "sparse_data_dist > aten::item"
  std::string source;         // "train.py:31 in step"; "" if unknown
  double blocked_ns = 0;      // per steady step
  double per_step = 0;        // calls
  std::vector<size_t> waits;  // in AnalysisContext::waits, the longest first
};

// The places of the waits in `filter` within steady steps, the longest blocked
// first.
std::vector<WaitSite> SitesOf(const AnalysisContext& context,
                              const WaitFilter& filter);

// Fills the finding of `found` with the two longest blocked places and with
// examples. Also sets the share of the waiting that may be for other ranks; the
// evidence mentions it only where the gain is a bound, because replay accounts
// for it.
void DescribeWaits(const AnalysisContext& context, const WaitFilter& filter,
                   Found& found);

// Adds why the gain is small, for the case that it is too small to report. That
// is the predicted gain, or half of `found.bound_ns`, which must be set.
void ExplainSmallGain(const AnalysisContext& context, const WaitSums& sums,
                      Found& found);

}  // namespace stepscope
