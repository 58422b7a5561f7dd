// FindUnreadGradients(): gradients that backward computes for nothing. Either
// no optimizer updates their parameters, such as those of a frozen teacher. Or
// they are cleared before any optimizer does, such as those that the critic's
// loss of a GAN leaves in the generator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "evidence/program/shortened_ops.h"

namespace stepscope {

struct UnreadGradients {
  // Why nothing can be said. If set, the rest is empty.
  std::string unknown = {};
  // The number of parameters with such gradients, and the bytes of the
  // gradients, in the backward pass that has most.
  double parameters = 0, bytes = 0;
  // Sizes of the gradients, largest first, each listed once. Empty, and `bytes`
  // 0, if sizes were not recorded.
  std::vector<std::vector<int64_t>> sizes = {};
  bool never_zeroed = false;  // backward adds each to an earlier one
  // The optimizers step in two recorded steps only. One that steps less often
  // than others may not have been seen.
  bool few_updates = false;
  // Known only because the optimizer's step runs fewer ops than there are
  // gradients.
  bool by_count = false;
  bool untrained = false;  // some parameters are never updated
  bool cleared = false;    // some are cleared before they are used
  // The part of backward that computes only such gradients: all nodes after the
  // last trained parameter, which is certain, and the nodes of FindDeadEnds().
  // Of other nodes, only the ops that compute gradients of weights, because a
  // trained parameter may need the other results of the node.
  std::vector<ShortenedOp> ops = {};
  double beside = 0;       // of `parameters`: before trained ones
  bool dead_ends = false;  // FindDeadEnds() found some
  RowId forward = kNone;   // the first forward op with such a parameter
};

// A gradient counts as unread if the optimizers update no tensor of its size,
// and no other op takes such a tensor between backward and the next forward
// pass. If some optimizers do not show what they update (own kernels, long
// lists), gradients of the size must also never be set to None or zero. If
// several parameters have the same size and only some are updated, two groups
// of gradients count: those that are never cleared while others of the size
// are, and those after a head whose sizes are exactly the updated ones. Empty
// unless every steady step has unread gradients.
//
// Without recorded sizes, only gradients count that a pass adds to in each step
// while it makes others anew, with an optimizer's step between any two passes;
// or, if each step has one pass, those beyond the number of tensors that the
// optimizer can have updated.
//
// Gradients of updated parameters count as unread if a later pass makes the
// gradients of all parameters of that size anew or the program sets all of them
// to zero, as in zero_grad(), and no update and no other op took a tensor of
// that size in between. Where several networks share a size, their order in the
// pass divides its gradients.
UnreadGradients FindUnreadGradients(const AnalysisContext& context);

}  // namespace stepscope
