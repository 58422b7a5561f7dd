// The tables of a page about what devices did: kernels, copies, collectives.
#pragma once

#include <stepscope/page.h>

#include "context/analysis_context.h"

namespace stepscope {

// Fill their members of `details`; empty without a GPU. Collectives of CPU-only
// runs are listed, too.
void ListKernels(const AnalysisContext& context, PageDetails& details);
void ListCopies(const AnalysisContext& context, PageDetails& details);
void ListCollectives(const AnalysisContext& context, PageDetails& details);

}  // namespace stepscope
