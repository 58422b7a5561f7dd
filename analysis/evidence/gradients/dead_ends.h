// FindDeadEnds(): parts of backward that run only because the weights of frozen
// layers still require gradients.
#pragma once

#include <stepscope/trace.h>

#include <set>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

// Returns the autograd nodes of dead ends in the steady steps. A dead end is a
// run of layers whose weights have the sizes `untrained`, on an input that
// needs no gradient, so that no gradient leaves them. An example is the pass
// over the targets of a perceptual loss. `read`: nodes that store the gradient
// of a trained parameter.
//
// A dead end starts with a layer that computes no gradient of its input and
// whose weight no op computes. It ends before the first of these: the next
// trained parameter; a layer with the sizes of its first layer, which starts
// another pass; and, if a trained layer ran earlier in the step, an op that
// takes several tensors. Ops after its last layer, such as an activation, are
// not included.
std::vector<RowId> FindDeadEnds(const AnalysisContext& context,
                                const std::set<Dims>& untrained,
                                const std::set<RowId>& read);

}  // namespace stepscope
