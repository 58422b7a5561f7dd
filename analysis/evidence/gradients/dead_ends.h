// FindDeadEnds(): parts of backward that run only because the weights of frozen
// layers still require gradients.
#pragma once

#include <stepscope/trace.h>

#include <set>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

// What backward stores gradients of.
struct StoredOf {
  std::set<Dims> untrained;  // sizes of weights that are never trained
  std::set<RowId> unread;    // nodes that store gradients of such weights, also
                             // of sizes that trained ones have, too
  std::set<RowId> read;      // nodes that store those of trained parameters
};

// Returns the autograd nodes of dead ends in the steady steps. A dead end is a
// run of untrained layers on an input that needs no gradient, so that no
// gradient leaves them. An example is the pass over the targets of a perceptual
// loss.
//
// A dead end starts with a layer that computes no gradient of its input and
// whose weight no op computes. It ends before the first of these: the next
// trained parameter; a layer with the sizes of its first layer, which starts
// another pass; and, if a trained layer ran earlier in the step, an op that
// takes several tensors. Ops after its last layer, such as an activation, are
// not included.
std::vector<RowId> FindDeadEnds(const AnalysisContext& context,
                                const StoredOf& stored);

}  // namespace stepscope
