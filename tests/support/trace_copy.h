// A Trace back in its builder, for tests that change a few of its rows.
#pragma once

#include <stepscope/trace.h>
#include <stepscope/trace_builder.h>

namespace stepscope {

// Adds all rows of the Trace; links are left for Build() to resolve again.
void AddAll(const Trace& trace, TraceBuilder& builder);

}  // namespace stepscope
