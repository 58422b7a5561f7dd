// Stalls: steps that take longer than the usual one, and what they did in the
// extra time. The lost time is counted over all steps, so it does not matter
// here whether a step is an outlier, which the mean leaves out, or so frequent
// that it is part of the mean.
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

// One step that takes at least 1.2 times as long as the usual one, or
// validates, or saves the model and pauses for at least 5 ms.
struct Stall {
  size_t step = 0;       // in Steps::windows
  double excess_ns = 0;  // time beyond the usual step; the whole step if it
                         // does nothing but validate
  StallKind kind = StallKind::kUnknown;
  double ns = 0;  // the part of the excess spent in `what`
  // The range, function or op; for validation, the op that takes longest; empty
  // for a pause.
  std::string what = {};
  std::string after = {};  // for kOwnWork: the op directly before the pause
};

struct Stalls {
  std::vector<Stall> stalls = {};  // in time order
  double usual_ns = 0;             // the median step
  size_t steps = 0;                // all but warm-up
};
// Returns the stalls; empty without steps. `facts` and `splits` (what each step
// spent its time on) have one entry per window of `steps`. A pure function.
Stalls FindStalls(const Trace& trace, const OpTree& tree, const Steps& steps,
                  const std::vector<StepFacts>& facts, const UsualStep& usual,
                  const std::vector<CauseTimes>& splits);

}  // namespace stepscope
