// FindParameterUpdates(): which sizes of tensors the optimizers update, and
// which sizes any other op takes after backward.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

// How tensors are used outside forward and backward.
struct ParameterUpdates {
  std::map<Dims, double> tensors = {};  // most updated in a step, by size
  // The tensors that optimizers update, and the optimizers' steps. A moving
  // average of the weights does not count. If no optimizer step was recorded,
  // `stepped` equals `tensors`, and `steps` is empty.
  std::map<Dims, double> stepped = {};
  std::vector<Span> steps = {};
  // Sizes that any op takes between backward and the next forward pass.
  // only_read: sizes taken by an op that writes to no such tensor and belongs
  // to no optimizer.
  std::set<Dims> taken = {}, only_read = {};
  std::vector<int64_t> times = {};  // of updates of known sizes
  bool all_known = true;            // each step of an optimizer shows all sizes
  bool in_backward = false;         // an optimizer runs in hooks
  // Sizes that are set to zero. unknown_zeroed: a list of unknown sizes is,
  // too.
  std::set<Dims> zeroed = {};
  bool unknown_zeroed = false;
};

ParameterUpdates FindParameterUpdates(const AnalysisContext& context);

// True if the op updates a list of tensors.
bool IsListUpdate(std::string_view name);

// True if the op may write to a parameter: an optimizer's update, or an
// in-place op elsewhere. In backward, only ops in hooks of AccumulateGrad
// count, where some optimizers run.
bool MayUpdateParameter(const AnalysisContext& context, RowId row);

// How often each size occurs among the arguments of ops. Not thread-safe:
// arguments are counted when they are first asked for.
class SizeCounts {
 public:
  explicit SizeCounts(const Trace& trace)
      : trace_(trace), known_(trace.op_inputs().size()) {}

  // Returns the count of each size in the argument list that has most of it. A
  // fused op takes parameters, gradients and state, each as a list. REQUIRES:
  // `inputs` is a row of op_inputs().
  const std::map<Dims, double>& Of(RowId inputs);

 private:
  const Trace& trace_;
  std::vector<std::optional<std::map<Dims, double>>> known_;
};

// Returns the count of the size; 0 if `counts` does not contain it.
double CountOfSize(const std::map<Dims, double>& counts, const Dims& dims);

}  // namespace stepscope
