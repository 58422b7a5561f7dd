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
  // Where the finding asks for more or less than the rung does: what for, as
  // "--batch 128". The factors are those of that.
  std::string of_change = {};
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
  bool kept = true;         // faster than the rung below
  std::string failed = {};  // not empty: the program failed, in these words

  double factor() const { return 1 / measured.ratio(); }
  measure::Interval factor_interval() const;
};

struct GoUpOptions {
  int pairs = 5;
  measure::Length length = {};
  std::function<void(const Taken&)> tell = {};  // of each rung. May be empty
};

struct Ladder {
  std::vector<Taken> rungs;  // in order
  size_t top = 0;            // the last one kept
  // The baseline and the top, run in turn; empty if the top is the baseline.
  measure::Comparison whole = {};
};

// One entry for each rung. A rung that is not faster, or fails, is left again:
// the next one starts from the rung below it.
// Errors: those of Bench and ReadProfile().
absl::StatusOr<Ladder> GoUp(measure::Bench& bench,
                            const std::vector<Rung>& rungs,
                            const GoUpOptions& options);

// What `advice`, the report of the rung below, says for `rung`, which leads
// from `below` to `settings`; steps repeat after `period`.
Reason ReasonFor(const Rung& rung, const measure::Advice& advice,
                 const measure::Settings& below,
                 const measure::Settings& settings, int period);

}  // namespace ladder
