// FindParameterUpdates(): which sizes of tensors the optimizers update, and
// which any other op takes behind backward.
#pragma once

#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

// What happens to tensors outside forward and backward.
struct ParameterUpdates {
  std::map<Dims, double> tensors = {};  // updated at most, by size
  // Those that optimizers update, and their steps; if none was recorded as
  // such, the same as `tensors`. A moving average of the weights is not among
  // them.
  std::map<Dims, double> stepped = {};
  std::vector<Span> steps = {};
  // By any op between backward and the next forward, and by those that write to
  // none of them and belong to no optimizer.
  std::set<Dims> taken = {}, only_read = {};
  std::vector<int64_t> times = {};  // of updates of known sizes
  bool all_known = true;            // each step of an optimizer shows all sizes
  bool in_backward = false;         // an optimizer runs in hooks
  // Sizes that are set to zero, and whether lists of unknown sizes are.
  std::set<Dims> zeroed = {};
  bool unknown_zeroed = false;
};

ParameterUpdates FindParameterUpdates(const AnalysisContext& context);

// True for an update of a list of tensors in one op.
bool IsListUpdate(std::string_view name);

// True for an op that may write to a parameter: an update of the optimizer, or
// one in place elsewhere. Those in backward are of optimizers that run in hooks
// of AccumulateGrad.
bool MayUpdateParameter(const AnalysisContext& context, RowId row);

// How often each size occurs in the longest list of an argument of `op`: a
// fused op takes parameters, gradients and state, of each one list.
std::map<Dims, double> CountSizes(const Trace& trace, const Op& op);

// 0 if `counts` has no such size.
double CountOfSize(const std::map<Dims, double>& counts, const Dims& dims);

}  // namespace stepscope
