// Finds the steps that do something besides training, so that no mean should
// include them: steps with a pass over validation data, and steps that save the
// model or log much.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/op_traits.h"
#include "steps/step_facts.h"
#include "steps/steps.h"

namespace stepscope {

// A step that writes less than this (1 MiB) to disk does not save a model. Our
// own choice: far more than a line of a log, far less than a model.
inline constexpr int64_t kWrittenBytes = 1 << 20;

// True if the step takes at least 1.2 times the usual step.
bool IsSlow(const StepFacts& step, const UsualStep& usual);

// True if the step copies at least half of the parameters' bytes to the host,
// and ten times what the usual step does. False if shapes were not recorded.
bool SavesModel(const StepFacts& step, const UsualStep& usual);

// True if the step is slow and saves or logs: it copies a model or ten times
// the usual bytes to the host, writes ten times the usual bytes, or spends half
// of its excess time in ranges named for saving or logging. False if the
// garbage collector or the loader explains half of the excess.
bool IsCheckpoint(const StepFacts& step, const UsualStep& usual);

// True if the step has forward but no backward work where other steps have
// both; or if it is slow and has 1.5 times the usual forward work without more
// backward work, or a range named for validation that explains half of its
// excess time.
bool IsValidation(const StepFacts& step, const UsualStep& usual);

// Sets the kind of validation and checkpoint steps and removes them from
// steps.steady. Does nothing with fewer than three steps, or if more than a
// third of the steps would be marked: what recurs that often is part of the
// usual step.
// REQUIRES: `facts` is FactsOf() of these steps.
void MarkNonTrainingSteps(const Trace& trace, const OpTree& tree,
                          const std::vector<StepFacts>& facts, Steps& steps);

}  // namespace stepscope
