// SizeVariation: whether the training steps take unequal times because their
// inputs have unequal sizes, as batches of sentences do.
#pragma once

#include <stepscope/trace.h>

#include <string>

#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

struct SizeVariation {
  // "aten::addmm gets inputs from [512, 128] to [7664, 128]": the op whose
  // input varies most. "" if the sizes do not make the steps unequal; then all
  // other members are 0.
  std::string what = {};
  // The share of the variance of the step times that the sizes explain, as a
  // straight line: at least 0.8.
  double explained = 0;
  // The mean step time minus the time of a step of the mean size, by a parabola
  // fitted to the steps: what steps of equal size would save. 0 if it is less
  // than two standard errors.
  double bend_ns = 0;
  // The part of the mean step time that grows with the sizes: the mean minus
  // the time of a step of size 0, by the parabola, or by the line if bend_ns is
  // 0.
  double grows_ns = 0;
  double mean_ns = 0;  // of the steps with known sizes
  double shortest_ns = 0, longest_ns = 0;
};

SizeVariation FindSizeVariation(const Trace& trace, const OpTree& tree,
                                const Steps& steps);

}  // namespace stepscope
