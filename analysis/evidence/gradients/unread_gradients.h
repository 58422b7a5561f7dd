// FindUnreadGradients(): gradients that backward makes for nothing. No
// optimizer updates their parameters, such as those of a frozen teacher; or
// they are cleared before one does, such as those that the loss of a GAN's
// critic leaves in the generator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "evidence/program/shortened_ops.h"

namespace stepscope {

struct UnreadGradients {
  // Why nothing can be said; the rest is empty then.
  std::string unknown = {};
  // Parameters with such a gradient, and its bytes, in the backward pass that
  // has most.
  double parameters = 0, bytes = 0;
  // Sizes of the gradients, largest first, without repetition.
  std::vector<std::vector<int64_t>> sizes = {};
  bool never_zeroed = false;  // backward adds each to that of earlier steps
  bool untrained = false;     // some are of parameters that are never updated
  bool cleared = false;       // some are cleared before they are used
  // The part of backward that makes only such gradients: all nodes behind the
  // last trained parameter, which is certain; those of FindDeadEnds(); of other
  // nodes the ops that make the gradients of weights, because a trained
  // parameter may need what the rest of the node makes.
  std::vector<ShortenedOp> ops = {};
  double beside = 0;       // of `parameters`: those in front of trained ones
  bool dead_ends = false;  // FindDeadEnds() found some
  RowId forward = kNone;   // the first forward op with such a parameter
};

// A gradient counts as unread if the optimizers update no tensor of its size,
// and no other op takes one between backward and the next forward pass. Where
// not all optimizers show what they update (kernels of their own, long lists),
// no gradient of the size must ever be set to None or zero either. Of several
// parameters of a size of which only some are updated, those count whose
// gradients were not set to None as the others', and all behind a head, whose
// sizes are those that are updated. Empty unless every steady step has such
// gradients.
//
// Gradients of updated parameters count if those of all parameters of that size
// are made anew in a later pass, as after zero_grad(), and no update and no
// other op took one of that size in between.
UnreadGradients FindUnreadGradients(const AnalysisContext& context);

}  // namespace stepscope
