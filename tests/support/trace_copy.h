// Puts a Trace back into a builder, for tests that change a few rows.
#pragma once

#include <stepscope/trace.h>
#include <stepscope/trace_builder.h>

namespace stepscope {

// Adds all rows of the Trace. Build() resolves the links again.
void AddAll(const Trace& trace, TraceBuilder& builder);

}  // namespace stepscope
