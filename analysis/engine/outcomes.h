// Outcomes: the measured gains of changes, compared with the predicted gains.
// They determine the likely range of a predicted gain; the model does not.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "edit/edit.h"

namespace stepscope {

// An outcome is ln(measured step ratio) / ln(predicted step ratio), for a pair
// of runs before and after a change. The step ratio is the step after the
// change / the step before. For small changes an outcome is about measured gain
// / predicted gain. However large it is, it never gives a step below 0.
struct Outcomes {
  // The range of the outcomes of 90 % of further pairs. It contains 1.
  double low = 1, high = 1;
  size_t pairs = 0;  // known pairs; 0: too few for a range
};

// Returns the gain, in the unit of `step`, if the gain `predicted` has this
// outcome. Both gains may be losses. REQUIRES: predicted < step.
double GainFor(double outcome, double predicted, double step);

// Returns the outcomes of all changes that `edit` makes, taken together: the
// widest interval, and the smallest number of pairs.
Outcomes OutcomesOf(const Edit& edit);

// The outcomes of the known pairs of one change.
struct KnownChange {
  std::string_view change;  // HostCut::change, or what another edit changes
  std::vector<double> outcomes;
};
std::span<const KnownChange> KnownChanges();

// Measured gain / upper bound, for the pairs of runs of one rule on CPUs.
struct KnownBounds {
  std::string_view rule;
  std::vector<double> shares;
};
// The rules with at least three pairs.
std::span<const KnownBounds> BoundsOfRules();

// Returns the share of the bound, 0 to 1, that 95 % of further changes by the
// rule gain at least: the median of `known`, times the distance below their
// rule's median that only 5 % of the pairs in `all` exceed. No distribution is
// assumed, because a few changes gain nothing.
double LeastOfBound(const KnownBounds& known, std::span<const KnownBounds> all);

// Returns the outcomes of the rule's bounds, as shares of the bound; nothing
// for a rule with fewer than three pairs.
Outcomes OutcomesOfBound(std::string_view rule);

// Returns the prediction interval for one further pair of `change`; nothing if
// fewer than two are known. A change of ops with fewer than three counts as any
// change of ops. The logarithms of the outcomes are taken to be normally
// distributed around the mean of their change. Their variance is between that
// of the change's own pairs and that of all changes (moderated t: Smyth,
// "Linear models and empirical Bayes methods", 2004), so the interval of a
// change is not narrow only because its few known pairs happen to be close to
// each other.
Outcomes PredictPair(std::span<const KnownChange> known,
                     std::string_view change);

}  // namespace stepscope
