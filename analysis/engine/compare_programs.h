// Whether two Traces can be compared: whether they have steps, are complete and
// of one program, and how much larger the batches of the second one are.
#pragma once

#include <stepscope/report.h>

#include <string>

#include "context/analysis_context.h"

namespace stepscope {

// Batch size of `after` / batch size of `before`: from the loaders' settings,
// or else, if `by_shapes`, from the layers' inputs, if nearly all of them
// differ by one factor in their first dimension. 1 if nothing shows a
// difference.
double BatchRatio(const AnalysisContext& before, const AnalysisContext& after,
                  bool by_shapes);

// Why the Traces may be of two programs, or of one on two machines: a clause
// each, empty if nothing says so.
struct Doubts {
  std::string model;    // other parameters get gradients
  std::string machine;  // another CPU or GPU
};
Doubts DoubtsAbout(const AnalysisContext& before, const AnalysisContext& after);

// As Comparison::incomplete, from the reports of both Traces.
std::string WhatIsIncomplete(const Report& first, const Report& second);

// Which Trace has no steps and what to do about it, a clause; empty if both
// have steps.
std::string WhyNoSteps(const AnalysisContext& before,
                       const AnalysisContext& after);

}  // namespace stepscope
