// Finds the places in a program that wait for the GPU. Also the parts that the
// findings of all rules about waits share. The functions have no state, so any
// thread may call them.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

struct WaitSite {
  std::string chain;          // "sparse_data_dist > aten::item"
  std::string source;         // "train.py:31 in step"; "" if unknown
  double blocked_ns = 0;      // per steady step
  double per_step = 0;        // calls
  std::vector<size_t> waits;  // in AnalysisContext::waits, longest first
};

// Returns the places of the waits in `filter` within steady steps, the longest
// blocked first.
std::vector<WaitSite> SitesOf(const AnalysisContext& context,
                              const WaitFilter& filter);

// Ends the evidence of waits during which the GPU runs only collectives.
inline constexpr std::string_view kMayBeRanks =
    ", so the cause may be that other ranks are late";

// Fills the finding of `found` with the two places that block longest, and with
// examples. Also sets the share of the waiting that may be for other ranks. The
// evidence mentions this share only if the gain is a bound, because the replay
// accounts for it.
void DescribeWaits(const AnalysisContext& context, const WaitFilter& filter,
                   Found& found);

// Adds why the gain is small, for the case that it is too small to report. The
// gain is the predicted one, or half of `found.bound_ns`, which must be set.
void ExplainSmallGain(const AnalysisContext& context, const WaitSums& sums,
                      Found& found);

}  // namespace stepscope
