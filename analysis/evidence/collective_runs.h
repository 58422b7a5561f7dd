// CollectiveRuns: series of collectives that one call could replace.
#pragma once

#include <cstddef>
#include <set>

#include "context/analysis_context.h"
#include "device/collective_names.h"

namespace stepscope {

// Collectives of unknown size that one call could replace: of one kind and
// group, on one stream, and with no product launched between two of them, so
// that none needs what another one gave.
struct CollectiveRuns {
  double collectives = 0, runs = 0;  // per step
  double bound_ns = 0;  // per step, without the longest of each run
  size_t steps = 0;     // steady steps with enough that others could replace
  CollectiveKind kind = CollectiveKind::kOther;
  std::set<size_t> members = {};  // in AnalysisContext::collectives
};

// Looks at the kernels of the steady steps. A step counts in `steps` if at
// least `many` of its collectives follow another one of their run.
CollectiveRuns FindRuns(const AnalysisContext& context, size_t many);

}  // namespace stepscope
