// GoUp: takes the rungs of a ladder one after the other, profiles each and
// measures it against the one below.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

#include "measure/bench.h"
#include "profile_facts.h"
#include "rungs.h"

namespace ladder {

// Why a rung was taken, according to the report of the rung below.
struct Reason {
  std::string finding;  // empty: no finding asked for it
  std::string gain_is;  // "predicted", "bound" or "none"
  // By how much samples/s grow, as a factor, and the range of that.
  double factor = 1;
  double factor_low = 1;
  double factor_high = 1;
};

struct Taken {
  Rung rung = {};
  measure::Settings settings = {};
  ProfileFacts facts = {};
  Reason reason = {};
  // Against the rung below that was kept; empty for the baseline.
  measure::Comparison measured = {};
  // Of the runs that were measured: the middle one, the least, the most.
  double samples_per_s = 0;
  double samples_per_s_low = 0;
  double samples_per_s_high = 0;
  bool kept = true;  // not beyond doubt slower than the rung below

  double factor() const { return 1 / measured.ratio(); }
  measure::Interval factor_interval() const;
};

struct GoUpOptions {
  int pairs = 5;
  measure::Length length = {};
  std::function<void(const Taken&)> tell = {};  // of each rung. May be empty
};

// One entry for each rung, in order. A rung that is slower is left again: the
// next one starts from the rung below it.
// Errors: those of Bench and ReadProfile().
absl::StatusOr<std::vector<Taken>> GoUp(measure::Bench& bench,
                                        const std::vector<Rung>& rungs,
                                        const GoUpOptions& options);

// What `advice`, the report of the rung below, says for `rung`.
Reason ReasonFor(const Rung& rung, const measure::Advice& advice);

}  // namespace ladder
