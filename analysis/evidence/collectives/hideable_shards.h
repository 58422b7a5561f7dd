// HideableShards: which all-gathers and reduce-scatters could run beside
// computing.
#pragma once

#include <optional>
#include <vector>

#include "context/analysis_context.h"
#include "device/collective.h"
#include "ops/intervals.h"

namespace stepscope {

// True for the kinds of collectives that move shards of parameters.
bool IsOfShards(const Collective& one);

// Before the first product of a step, and after its last one, there is nothing
// to compute: the first gather and the last reduce-scatter are exposed whatever
// is fetched ahead. Where no kernels are recorded, none is left out.
class HideableShards {
 public:
  explicit HideableShards(const AnalysisContext& context);
  // True if `one` is of shards and some computing could run beside it.
  bool operator()(const Collective& one) const;
  // True if `one` is of shards and nothing could run beside it.
  bool AtEdge(const Collective& one) const {
    return IsOfShards(one) && !(*this)(one);
  }

 private:
  // By step: from the begin of the first product to the end of the last.
  std::vector<std::optional<Span>> products_;
};

}  // namespace stepscope
