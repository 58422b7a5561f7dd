// C++ stacks, sampled: one per distinct chain of open operators and thread. A
// training loop runs the same chains every step, so after the first step it
// costs one look into a table.
#pragma once

#include <cstdint>
#include <string_view>

#include "torch_decode.h"

namespace stepscope {

// The chain of an operator inside another chain. A schema's name is known by
// its address, any other by its text.
uint64_t ChainOf(uint64_t outer, const char* name, bool has_schema);

// True the first time this thread sees the chain in this window (its number).
// Never grows: beyond kMaxChains, operators of new chains are counted and get
// no stack.
inline constexpr size_t kMaxChains = 3 << 12;
bool IsNewChain(uint64_t chain, uint64_t window);

// How many operators of all threads got no stack since the last call. Any
// thread.
int64_t TakeUnsampled();

// Adds a kStackSlot record about the operator just added. REQUIRES: not inside
// a WriteScope.
void AddStack();

// Frames without those of the hooks and of RecordFunction. No thread rules: it
// reads debug sections of loaded files, which may take a second the first time.
Symbolizer MakeTorchSymbolizer();

}  // namespace stepscope
