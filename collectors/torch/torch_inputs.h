// Records the arguments of an operator call as words (torch_input_words.h).
#pragma once

#include <ATen/record_function.h>
#include <stepscope/event_writer.h>

namespace stepscope {

// Adds a kInputsSlot record to the operator that was just added. Arguments that
// do not fit into a record are left out and counted as a cut.
void AddInputs(WriteScope& scope, const at::RecordFunction& fn);

}  // namespace stepscope
