// Whether two Traces can be compared: whether they have steps, are complete and
// are of the same program, and how much larger the second one's batches are.
#pragma once

#include <stepscope/report.h>

#include <string>

#include "context/analysis_context.h"

namespace stepscope {

// Returns the batch size of `after` / batch size of `before`, from the loaders'
// settings. If these are unknown and `by_shapes` is true, compares the first
// dimensions of the layers' inputs, and returns the factor between them if it
// is the same for nearly all layers. 1 if nothing shows a difference.
double BatchRatio(const AnalysisContext& before, const AnalysisContext& after,
                  bool by_shapes);

// Why the Traces may be of two different programs, or of the same program on
// two machines. Each text is a clause, empty if nothing suggests it.
struct Doubts {
  std::string model;    // other parameters get gradients
  std::string machine;  // another CPU or GPU
};
Doubts DoubtsAbout(const AnalysisContext& before, const AnalysisContext& after);

// Returns the text for Comparison::incomplete, from the reports of both Traces.
std::string WhatIsIncomplete(const Report& first, const Report& second);

// Returns a clause that says which Trace has no steps and what to do about it;
// empty if both have steps.
std::string WhyNoSteps(const AnalysisContext& before,
                       const AnalysisContext& after);

}  // namespace stepscope
