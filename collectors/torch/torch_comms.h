// Records the parameters of collectives: c10d wraps each call in a function
// named record_param_comms and puts the parameters into the thread's debug
// info.
#pragma once

#include <ATen/record_function.h>

namespace stepscope {

// True if fn wraps a collective. REQUIRES: fn has no schema.
bool IsComms(const at::RecordFunction& fn);

// Adds a kCommsSlot record to the operator that was just added. REQUIRES: not
// inside a WriteScope.
void AddComms(const at::RecordFunction& fn);

}  // namespace stepscope
