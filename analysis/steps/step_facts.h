// StepFacts: what single steps do besides training (validate, log, save the
// model, collect garbage), and UsualStep, which they are compared with.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// True for ranges that the program itself opened, not the framework.
bool IsUserRange(const Range& range);

// True for what state_dict(), torch.save() and copies of a model do with each
// tensor: aten::detach, aten::clone and the like.
bool ReadsTensor(std::string_view op);

// Figures of one step. An event belongs to the step whose host window contains
// its begin, an asynchronous copy to the step that issued it.
struct StepFacts {
  int64_t length_ns = 0;      // of the tiled span
  int64_t to_host_bytes = 0;  // copied from the device
  int64_t written_bytes = 0;  // written to disk, as the operating system counts
  int64_t logging_ns = 0;     // the longest range named for logging or saving
  int64_t validation_ns = 0;  // the longest range named for validation
  int64_t gc_ns = 0;          // Python's garbage collector
  int64_t loading_ns = 0;     // waiting for batches
  int64_t forward = 0;   // convolutions and matrix products outside backward
  int64_t backward = 0;  // autograd nodes
  int64_t taken = 0;     // outermost ops that read or copy whole tensors, as
                         // saving does with each parameter
  // The longest range named for logging or saving: its name, where it is on the
  // training thread, whether its name means saving, and the bytes copied to the
  // host in it.
  std::string logging;
  Span logging_span;
  bool saves = false;
  int64_t saved_to_host_bytes = 0;
};
// Returns one entry per window of `steps`.
std::vector<StepFacts> FactsOf(const Trace& trace, const OpTree& tree,
                               const Steps& steps);

// Returns the disjoint spans in which `thread` saves the model, judged by the
// names of the program's ranges. Needed because saving takes the same time for
// any batch size.
std::vector<Span> SavingSpans(const Trace& trace, RowId thread);

// Medians over all steps, except length_ns: its median is over steady steps.
struct UsualStep {
  double length_ns = 0;
  double to_host_bytes = 0, written_bytes = 0;
  double validation_ns = 0, loading_ns = 0;
  double forward = 0, backward = 0;
  double taken = 0;
  double parameters = 0;        // accumulated gradients, mean over all steps
  int64_t parameter_bytes = 0;  // of the model; 0 if shapes were not recorded
};
// All 0 without steady steps. REQUIRES: `facts` is FactsOf() of the same steps.
UsualStep UsualOf(const Trace& trace, const OpTree& tree, const Steps& steps,
                  const std::vector<StepFacts>& facts);

}  // namespace stepscope
