// C++ stacks, for programs without an interpreter (torch_sampling.h says when).
#pragma once

#include "torch_decode.h"

namespace stepscope {

// Adds a kStackSlot record to the operator that was just added. REQUIRES: not
// inside a WriteScope.
void AddStack();

// Returns a function that names frames and drops those of the hooks and of
// RecordFunction. Any thread may call it. It reads the debug sections of loaded
// files, which may take a second the first time.
Symbolizer MakeTorchSymbolizer();

}  // namespace stepscope
