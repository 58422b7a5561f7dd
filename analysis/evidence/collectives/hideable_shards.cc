#include "evidence/collectives/hideable_shards.h"

#include <algorithm>

namespace stepscope {

bool IsOfShards(const Collective& one) {
  return one.kind == CollectiveKind::kAllGather ||
         one.kind == CollectiveKind::kReduceScatter;
}

HideableShards::HideableShards(const AnalysisContext& context)
    : products_(context.steps.windows.size()) {
  for (const KernelUse& use : context.kernels.uses) {
    if (!use.multiplies || use.in_optimizer) continue;
    const Kernel& kernel = context.trace.kernels()[use.kernel];
    std::optional<Span>& span = products_[use.step];
    if (!span) span = {kernel.begin_ns, kernel.end_ns};
    span->begin_ns = std::min(span->begin_ns, kernel.begin_ns);
    span->end_ns = std::max(span->end_ns, kernel.end_ns);
  }
}

bool HideableShards::operator()(const Collective& one) const {
  if (!IsOfShards(one)) return false;
  if (one.step == kNoStep || !products_[one.step]) return true;
  return one.kind == CollectiveKind::kAllGather
             ? one.moved.end_ns > products_[one.step]->begin_ns
             : one.moved.begin_ns < products_[one.step]->end_ns;
}

}  // namespace stepscope
