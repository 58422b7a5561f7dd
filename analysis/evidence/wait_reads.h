// What the waits of a run are for: which read a value back and why, and which
// belong to clipping or scaling gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

enum class ReadKind : uint8_t {
  kScalar,  // item() and the like
  kBranch,  // a decision: `if tensor:`
  kShape,   // a result whose size depends on values: nonzero, boolean index
  kCopy,    // a tensor copied to the host
  kPrint,   // a tensor printed, element by element
};

// By wait of AnalysisContext::waits.
std::vector<ReadKind> ReadKinds(const AnalysisContext& context);

struct Clipping {
  std::vector<bool> is_clip;  // by wait of AnalysisContext::waits
  int64_t norms = 0;          // norm ops before these waits
  bool scaler = false;        // the gradient scaler's check is among them
};

// Waits between the backward pass and the optimizer that read a value back
// after a norm, or a check for infinities, of the gradients.
Clipping FindClipping(const AnalysisContext& context);

}  // namespace stepscope
