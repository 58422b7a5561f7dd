// CollectiveRuns: series of collectives that one call could replace.
#pragma once

#include <cstddef>
#include <set>

#include "context/analysis_context.h"
#include "device/collective_names.h"

namespace stepscope {

// Series ("runs") of collectives that one call could replace. Those of a run
// have the same kind, group and stream, and their size is unknown. No matrix
// product was launched between two of them, so none needs the result of an
// earlier one.
struct CollectiveRuns {
  double collectives = 0, runs = 0;  // per step
  double bound_ns = 0;               // most that can be saved per step
  // Steady steps in which merging saves at least `many` collectives.
  size_t steps = 0;
  CollectiveKind kind = CollectiveKind::kOther;
  std::set<size_t> members = {};  // indices, AnalysisContext::collectives
};

// Searches the kernels of the steady steps. A step counts in `steps` if merging
// its runs saves at least `many` collectives. Leaves out all-reduces of
// gradients unless `gradients`.
CollectiveRuns FindRuns(const AnalysisContext& context, size_t many,
                        bool gradients);

}  // namespace stepscope
