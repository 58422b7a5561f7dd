// Whether two Traces are of one program, and how much larger the batches of the
// second one are.
#pragma once

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

}  // namespace stepscope
