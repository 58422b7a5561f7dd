// Records the arguments of an operator call as words (torch_input_words.h).
#pragma once

#include <ATen/record_function.h>
#include <stepscope/event_writer.h>

namespace stepscope {

// Adds a kInputsSlot record to the operator just added. Leaves out what does
// not fit into a record, and counts that.
void AddInputs(WriteScope& scope, const at::RecordFunction& fn);

}  // namespace stepscope
