// Advice: what a report says, as far as a program can follow it. Read from
// advice/rank<r>.json (analysis/README.md has its schema).
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace measure {

struct AdvisedChange {
  std::string id;             // of the finding: "sync-data-loading"
  std::string severity = {};  // "critical" to "note"
  std::string gain_is = {};   // "predicted", "bound" or "none"
  // Milliseconds per step of the recorded batch.
  double gain_ms = 0;
  double gain_low_ms = 0;
  double gain_high_ms = 0;
  double of_ms = 0;  // the gain is of a step this long; 0: of a steady one
  std::string evidence = {};
  std::string where = {};
  std::string fix = {};  // in C++
  // What to set, by the report's own names: {"workers", "1"}, {"set_to_none",
  // "true"}. Empty where the fix is no setting.
  std::map<std::string, std::string> settings = {};

  // Worth doing, says the report: it is more than a note and wins time.
  bool ToBeDone() const {
    return severity != "note" && gain_is != "none" && gain_ms > 0;
  }
};

// All that is to be done, together.
struct AdvisedPlan {
  std::map<std::string, std::string> settings = {};  // as above
  double before_ms = 0;                              // 0: nothing is planned
  double after_ms = 0;
};

struct Advice {
  std::string path;
  double step_ms = 0;      // mean of the steady recorded steps
  double all_mean_ms = 0;  // of those that validate or save, too; 0: unknown
  int steady = 0;          // how many these were
  double cov = 0;          // how much they vary: standard deviation / mean
  int usable_cores = -1;
  std::vector<AdvisedChange> findings;  // in the report's order

  // Ids of findings that the steps vary too much to tell from chance.
  std::vector<std::string> held_back;

  AdvisedPlan plan;

  // Nothing is left that is worth doing, nor held back.
  bool Healthy() const;
  // nullptr if the report has no finding `id` worth doing.
  const AdvisedChange* Find(std::string_view id) const;
};

// A step before and after a change, milliseconds per step of the recorded
// batch. A gain of the whole step is no promise: it is left out.
struct PromisedStep {
  double before_ms = 0;
  double after_ms = 0;
  double low_ms = 0;  // the likely range of after_ms
  double high_ms = 0;
};

// What `change` promises where a step is measured as the mean of `period` in a
// row (see PeriodOf()): of more than one, the slow ones count in.
PromisedStep PromisedBy(const AdvisedChange& change, const Advice& advice,
                        int period);

// Errors: DataLoss, if it is not JSON, or no advice of version 1.
absl::StatusOr<Advice> ParseAdvice(std::string_view json,
                                   const std::string& path);

}  // namespace measure
