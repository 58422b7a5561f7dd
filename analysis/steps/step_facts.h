// What single steps do besides training: validate, log, save the model, collect
// garbage. Told by ranges, by copies and ops, by what the operating system
// counted; and what the usual step does, to hold them against.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

struct StepFacts {
  int64_t length_ns = 0;
  int64_t to_host_bytes = 0;
  int64_t written_bytes = 0;
  int64_t logging_ns = 0;     // in ranges that say so
  int64_t validation_ns = 0;  // the same
  int64_t gc_ns = 0;
  int64_t loading_ns = 0;
  int64_t forward = 0;   // convolutions and matrix products outside backward
  int64_t backward = 0;  // autograd nodes
  std::string logging;   // the longest range that logs or saves,
  Span logging_span;     // where it is, on the training thread,
  bool saves = false;    // whether its name says that it saves,
  int64_t saved_to_host_bytes = 0;  // and what is copied in it
};
// One for each of steps.windows.
std::vector<StepFacts> FactsOf(const Trace& trace, const OpTree& tree,
                               const Steps& steps);

// When `thread` saves the model, as ranges of the program say, merged: it takes
// as long for any batch.
std::vector<Span> SavingSpans(const Trace& trace, RowId thread);

// Medians; of the steps' length over the steady ones.
struct UsualStep {
  double length_ns = 0;
  double to_host_bytes = 0, written_bytes = 0;
  double validation_ns = 0, loading_ns = 0;
  double forward = 0, backward = 0;
  int64_t parameter_bytes = 0;  // of the model; 0 if shapes were not recorded
};
UsualStep UsualOf(const Trace& trace, const OpTree& tree, const Steps& steps,
                  const std::vector<StepFacts>& facts);

}  // namespace stepscope
