// The tables of a page about what devices did: kernels, copies, collectives.
#pragma once

#include <stepscope/page.h>

#include "context/analysis_context.h"

namespace stepscope {

// Each fills its member of `details`. Kernels and copies stay empty on a run
// without a GPU; collectives are listed for CPU-only runs, too.
void ListKernels(const AnalysisContext& context, PageDetails& details);
void ListCopies(const AnalysisContext& context, PageDetails& details);
void ListCollectives(const AnalysisContext& context, PageDetails& details);

}  // namespace stepscope
