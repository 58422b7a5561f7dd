// FindDeadEnds(): parts of backward that run only because the weights of frozen
// layers still require gradients.
#pragma once

#include <stepscope/trace.h>

#include <set>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

// The autograd nodes of passes through layers whose weights have the sizes
// `untrained`, on an input that needs no gradient, as that of the targets of a
// perceptual loss: no gradient leaves them. A pass begins with a layer that
// makes no gradient of its input, and whose weight no op makes. It ends before
// the next trained parameter; where a trained layer ran before, at an op that
// takes several tensors; and before the next call of a layer like its first
// one, which begins another pass; what follows its last layer, such as an
// activation, is not counted. Of the steady steps; nodes in `read` keep the
// gradient of a trained parameter.
std::vector<RowId> FindDeadEnds(const AnalysisContext& context,
                                const std::set<Dims>& untrained,
                                const std::set<RowId>& read);

}  // namespace stepscope
