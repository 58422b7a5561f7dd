// Yield(): the gain of general advice (compile, a larger batch, fuse) is only
// what is left of it after the changes of findings with a specific cause.
#pragma once

#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "engine/sizing.h"

namespace stepscope {

// Lowers the gains of general findings to what they still gain after the
// specific ones in `found`, and moves those that gain too little to
// `superseded`. Where a gain was predicted, it then refers to the step with the
// specific changes made (Finding::baseline_ms).
void Yield(const AnalysisContext& context, std::vector<SizedFinding>& found,
           std::vector<std::string>& superseded);

}  // namespace stepscope
