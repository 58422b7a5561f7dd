// Which steps do something besides training, so that no mean should hold them:
// those with a pass over validation data, and those that save the model or log
// much.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

#include "ops/op_traits.h"
#include "steps/step_facts.h"
#include "steps/steps.h"

namespace stepscope {

// A step that writes less does not save.
inline constexpr int64_t kWrittenBytes = 1 << 20;

// The step is 1.2 times the usual one.
bool IsSlow(const StepFacts& step, const UsualStep& usual);
// It copies half of the parameters to the host, as seldom one does.
bool SavesModel(const StepFacts& step, const UsualStep& usual);
// It is slow, and at least half of that comes of logging or saving: unusually
// much is copied to the host or written, or a range says so. Not where the
// garbage collector or the loader account for it.
bool IsCheckpoint(const StepFacts& step, const UsualStep& usual);
// It holds nothing but forward passes where others train, or it is slow and
// holds further ones, or a range that says so.
bool IsValidation(const StepFacts& step, const UsualStep& usual);

// Tells steps that validate or save from those that train, if no more than a
// third do: what recurs more often is how the run goes. They are steady no
// longer.
void MarkNonTrainingSteps(const Trace& trace, const OpTree& tree, Steps& steps);

}  // namespace stepscope
