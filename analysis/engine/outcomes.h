// Outcomes: what changes brought, compared with what was predicted for them.
// They, and not the model, say how far a predicted gain may be off.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "edit/edit.h"

namespace stepscope {

// ln(measured step ratio) / ln(predicted one), of runs before and after a
// change of the same kind. For small changes that is measured gain / predicted
// gain; and however large it is, some of the step is left.
struct Outcomes {
  double low = 1, high = 1;  // hold 90 % of further pairs, and 1
  size_t pairs = 0;          // 0: too few to tell
};

// The gain, in the unit of `step`, for such an outcome of `predicted`. Both may
// be losses. REQUIRES: predicted < step.
double GainFor(double outcome, double predicted, double step);

// The outcomes of all kinds of change that `edit` makes, taken together: the
// widest interval, and the smallest number of pairs.
Outcomes OutcomesOf(const Edit& edit);

// The known pairs, a list per kind of change.
std::span<const std::vector<double>> KnownPairs();

// Returns the prediction interval for one further pair of `kinds[which]`, which
// must have two pairs or more: the logarithms are normally distributed, around
// the mean of the kind and with the same standard deviation for all kinds. So a
// kind of which three pairs are known, which happen to be close to each other,
// has no narrow interval.
Outcomes PredictPair(std::span<const std::vector<double>> kinds, size_t which);

}  // namespace stepscope
