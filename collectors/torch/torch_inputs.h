// The arguments of an operator call as raw words (torch_input_words.h).
#pragma once

#include <ATen/record_function.h>
#include <stepscope/event_writer.h>

namespace stepscope {

// Adds a kInputsSlot record about the operator just added. What does not fit a
// record is left out and counted.
void AddInputs(WriteScope& scope, const at::RecordFunction& fn);

}  // namespace stepscope
