// FindWorkBetweenSteps(): ops that the training thread runs between the
// optimizer's step and the next forward pass, such as statistics of the
// weights, or a moving average of them.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

enum class BetweenSteps : uint8_t {
  kStatistics,  // histograms, norms, minima, of weights or with values read
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
  // A view or the like of a tensor of a parameter's shape; kind is kOther.
  bool views_weights = false;
  // The op, and the framework's code before it if another such op precedes.
  Span span = {};
};

struct WorkBetweenSteps {
  std::vector<OpBetweenSteps> ops = {};  // of the steady steps, in time order
  double updated_steps = 0;  // steady steps in which the optimizer steps
};

// Only what no other rule judges: loading, validation, saving, collectives,
// zeroing of gradients and the loss scale are left out, as are foreach and
// fused updates, which cost what they must. After the end of a step's window,
// or if a forward pass follows inside it, ops may prepare that pass; there, and
// where steps are not marked, only those on weights count. Ops work on weights
// if sizes were recorded, and theirs include most sizes of parameters, at least
// two. REQUIRES: a range marks the optimizer's step.
WorkBetweenSteps FindWorkBetweenSteps(const AnalysisContext& context);

// What remains of the time of `ops`, all kWeights, if each parameter is updated
// in one pass in place (lerp_), at the pace of the recorded ops: 0 to 1. 1 if
// sizes were not recorded.
double LeftInOnePass(const AnalysisContext& context,
                     const std::vector<OpBetweenSteps>& ops);

}  // namespace stepscope
