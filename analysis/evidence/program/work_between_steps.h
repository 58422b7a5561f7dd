// FindWorkBetweenSteps(): ops that the training thread runs between the
// optimizer's step and the next forward pass, such as statistics of the weights
// or a moving average of them.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// True for ops that summarise a tensor or search it for values: histograms,
// norms, means, extremes.
bool IsStatistics(std::string_view op);

// Returns the times of the training thread that other rules judge: loading,
// saving, validation, the optimizer's update.
std::vector<Span> JudgedElsewhere(const AnalysisContext& context);

enum class BetweenSteps : uint8_t {
  kStatistics,  // histograms, norms, ... of weights, or with values read
  kWeights,     // ops on tensors of the parameters' shapes, one at a time
  kCopies,      // copies of storages as large as the parameters', as
                // copy.deepcopy() makes them
  kOther,
};

// One outermost op.
struct OpBetweenSteps {
  RowId row = kNone;
  size_t step = 0;  // index into Steps::windows
  BetweenSteps kind = BetweenSteps::kOther;
  // True for a view (or similar) of a tensor of a parameter's shape. kind is
  // kOther.
  bool views_weights = false;
  // The op, plus the framework's code before it if another such op comes right
  // before.
  Span span = {};
};

struct WorkBetweenSteps {
  std::vector<OpBetweenSteps> ops = {};  // of the steady steps, in time order
  double updated_steps = 0;  // steady steps in which the optimizer steps
};

// Returns only ops that no other rule judges. Loading, validation, saving,
// collectives, zeroing of gradients and the loss scale are left out. So are
// foreach and fused updates, which cost no more than necessary.
//
// Ops after the end of a step's window, or followed by a forward pass inside
// it, may prepare that pass. Among these, and if steps are not marked, only ops
// on weights count. Ops are known to work on weights if they take most sizes of
// parameters, at least two. Without recorded sizes, they must update tensors in
// place as often as there are parameters. REQUIRES: a range marks the
// optimizer's step.
WorkBetweenSteps FindWorkBetweenSteps(const AnalysisContext& context);

// Returns the share (0 to 1) of the time of `ops`, all kWeights, that remains
// if each parameter is updated in a single in-place pass (lerp_) at the pace of
// the recorded ops.
double LeftInOnePass(const AnalysisContext& context,
                     const std::vector<OpBetweenSteps>& ops);

}  // namespace stepscope
