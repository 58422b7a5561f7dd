// C++ stacks, sampled: one per distinct chain of open operators and thread. A
// training loop runs the same chains every step, so after the first step it
// costs one look into a table.
#pragma once

#include <stepscope/event_writer.h>
#include <stepscope/slot_decode.h>

#include <cstdint>
#include <string_view>

namespace stepscope {

// The chain of an operator inside another chain. A schema's name is known by
// its address, any other by its text.
uint64_t ChainOf(uint64_t outer, const char* name, bool has_schema);

// True the first time this thread sees the chain in this window. Never grows:
// beyond kMaxChains, new chains are counted in the log and get no stack.
inline constexpr size_t kMaxChains = 3 << 12;
bool IsNewChain(uint64_t chain, ThreadLog* log);

// Adds a kStack record about the operator just added. REQUIRES: not inside a
// WriteScope.
void AddStack();

// Frames without those of the hooks and of RecordFunction. No thread rules: it
// reads debug sections of loaded files, which may take a second the first time.
Symbolizer MakeTorchSymbolizer();

}  // namespace stepscope
