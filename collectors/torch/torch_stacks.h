// C++ stacks, one per thread and distinct chain of open operators. A training
// loop runs the same chains in every step, so that after the first step an
// operator costs one table look-up. The first step of a window is usually a
// warm-up step: see ProfileOptions::with_stack.
#pragma once

#include <cstdint>
#include <string_view>

#include "torch_decode.h"

namespace stepscope {

// A hash of the chain `outer` extended by an operator. Names of schemas are
// compared by address, others by text.
uint64_t ChainOf(uint64_t outer, const char* name, bool has_schema);

// True the first time this thread sees the chain in this window (its number).
// Never grows: beyond kMaxChains, operators of new chains are counted and get
// no stack.
inline constexpr size_t kMaxChains = 3 << 12;
bool IsNewChain(uint64_t chain, uint64_t window);

// How many operators of all threads got no stack since the last call. Any
// thread.
int64_t TakeUnsampled();

// Adds a kStackSlot record to the operator just added. REQUIRES: not inside
// a WriteScope.
void AddStack();

// Gives frames without those of the hooks and of RecordFunction. Any thread may
// call it. It reads the debug sections of loaded files, which may take a second
// the first time.
Symbolizer MakeTorchSymbolizer();

}  // namespace stepscope
