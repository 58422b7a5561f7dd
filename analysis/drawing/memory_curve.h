// DrawMemory(): what tensors use during the step with the highest peak.
#pragma once

#include <stepscope/page.h>
#include <stepscope/trace.h>

namespace stepscope {

// Fills `memory` of `details`: one curve per device, at most eight; empty if
// allocations were not recorded.
void DrawMemory(const Trace& trace, PageDetails& details);

}  // namespace stepscope
