// Outcomes: the measured gains of changes, compared with the predicted ones.
// The likely range of a predicted gain follows from them, not from the model.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "edit/edit.h"

namespace stepscope {

// ln(measured step ratio) / ln(predicted one), of runs before and after a
// change of the same kind. For small changes that is measured gain / predicted
// gain; and no outcome, however large, makes a step shorter than nothing.
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
