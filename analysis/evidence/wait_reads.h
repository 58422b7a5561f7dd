// What the program waits for: which waits read a value back, for what purpose,
// and which belong to clipping or scaling gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

enum class ReadKind : uint8_t {
  kScalar,  // item() and the like
  kBranch,  // a branch of the program: `if tensor:`
  kShape,   // an op whose result size depends on values: nonzero, masked_select
  kCopy,    // a tensor copied to the host
  kPrint,   // a tensor printed, element by element
};

// Returns one kind per wait of AnalysisContext::waits.all, judged by the ops
// around the wait.
std::vector<ReadKind> ReadKinds(const AnalysisContext& context);

struct Clipping {
  std::vector<bool> is_clip;  // indexed like AnalysisContext::waits.all
  int64_t norms = 0;          // norm ops before these waits
  bool scaler = false;  // most of them read the gradient scaler's check for
                        // infinities
};

// Finds the waits that read a scalar between the backward pass and the
// optimizer, after a norm of the gradients or the gradient scaler's check.
Clipping FindClipping(const AnalysisContext& context);

}  // namespace stepscope
