// LateGradients: all-reduces of gradients that a program issues only after the
// whole backward pass, although most gradients were ready before.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "context/analysis_context.h"
#include "edit/edit.h"
#include "evidence/gradient_passes.h"

namespace stepscope {

// The default of DistributedDataParallel's bucket_cap_mb.
inline constexpr double kBucketBytes = 25.0 * (1 << 20);
// A pass with this many collectives per parameter reduces each gradient by
// itself.
inline constexpr double kPerParameterShare = 0.9;

// What LateGradients::early assumes, as findings say it.
inline constexpr char kIssuedWhenReady[] =
    "each of them runs as soon as backward has made its gradients, the last "
    "ones of the loop first";

struct LateGradients {
  std::set<size_t> members = {};  // indices, AnalysisContext::collectives
  double exposed_ns = 0;          // per step
  // Each all-reduce as soon as its gradients are made; those of single
  // gradients as soon as a bucket of 25 MiB is full, if their sizes are known.
  // The recording does not say which gradients an all-reduce takes. A loop goes
  // through the parameters in the order of the model, and backward makes their
  // gradients in the reverse order; so the last all-reduce is taken to be ready
  // first.
  std::vector<EarlyStart> early = {};
};

// Finds them in those of `passes` whose all-reduces were all issued after the
// last node of the pass. REQUIRES: `passes` are FindGradientPasses() of
// `context`. Empty without a GPU.
LateGradients FindLateGradients(const AnalysisContext& context,
                                const std::vector<GradientPass>& passes);

}  // namespace stepscope
