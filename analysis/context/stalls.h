// Stalls: steps that take longer than the usual one, what they did in the time
// beyond it, and how often that recurs. What is lost counts over all steps, so
// it does not matter here whether a step was left out of the mean as an
// outlier or is so frequent that it is part of it.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/op_traits.h"
#include "steps/step_facts.h"
#include "steps/steps.h"
#include "timeline/causes.h"

namespace stepscope {

enum class StallKind : uint8_t {
  kGarbage,  // Python's collector, as recorded
  kLoading,  // waits for batches
  kSaving,   // saves the model or logs, by name, by what it copies or writes,
             // or because it reads all parameters
  kOwnWork,  // a range or a function that the usual step does not have, or a
             // pause right behind an op that it does not have
  kPause,    // a long time without any op, for no recorded reason
  kOps,      // an op that takes longer or that the usual step does not have
  kCommunicating,  // collectives
  kCompiling,      // torch.compile, by a range or function of Dynamo's
  kValidation,     // passes over validation data, see non_training_steps.h
  kUnknown,
};

// One step that takes 1.2 times the usual one or more, or validates.
struct Stall {
  size_t step = 0;       // in Steps::windows
  double excess_ns = 0;  // beyond the usual step; all of a step that does
                         // nothing but validate
  StallKind kind = StallKind::kUnknown;
  double ns = 0;  // of the excess, in `what`
  // The range, function or op; of validation, the op that takes longest; empty
  // for a pause.
  std::string what = {};
  std::string after = {};  // of kOwnWork: the op in front of the pause
};

struct Stalls {
  std::vector<Stall> stalls = {};  // in time order
  double usual_ns = 0;             // the median step
  size_t steps = 0;                // all but warm-up
};
// Empty without steps. `facts` and `splits`, what each step spent its time on,
// are of the windows of `steps`. A pure function.
Stalls FindStalls(const Trace& trace, const OpTree& tree, const Steps& steps,
                  const std::vector<StepFacts>& facts, const UsualStep& usual,
                  const std::vector<CauseTimes>& splits);

}  // namespace stepscope
