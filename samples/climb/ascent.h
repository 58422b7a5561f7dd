// Ascend: profile, follow the first finding, measure, keep or take back; until
// the report has nothing more to say. Where it holds something back because the
// steps vary, more of them are recorded.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "measure/advice.h"
#include "measure/bench.h"
#include "measure/comparison.h"
#include "measure/settings.h"

namespace climb {

// One finding that was followed.
struct Step {
  std::string id;
  std::string gain_is;  // "predicted" or "bound"
  measure::Settings before, after;
  // The report's words: the recorded step, and the step it promises with the
  // change, with its range. Of a larger batch: its own, longer step.
  double recorded_ms = 0;
  double predicted_ms = 0;
  double predicted_low_ms = 0;
  double predicted_high_ms = 0;
  // Of the time per sample, after / before: free of what the machine drifted
  // between recording and measuring.
  double predicted_ratio = 1;
  measure::Comparison measured;
  bool kept = false;
  // Not empty: the program failed with the change, in these words; nothing was
  // measured then.
  std::string failed;

  // Predicted step / measured step - 1.
  double error() const { return predicted_ms / measured.after_ms() - 1; }
  // The same of that ratio.
  double ratio_error() const { return predicted_ratio / measured.ratio() - 1; }
};

// A finding that is worth doing, says the report, and was not done.
struct Left {
  std::string id;
  std::string why;
};

// What to do next, and the report that says so.
struct Choice {
  const measure::Advice* advice = nullptr;
  const measure::AdvisedChange* change = nullptr;  // nullptr: nothing
  measure::Settings after = {};
  std::vector<Left> left = {};  // passed over before it
};

// What the middle one of the reports asks for first, that is not `tried`; where
// it asks for nothing, what most of them ask for: a noisy recording is silent
// about what it cannot tell from noise. `reports` by step time, not empty; they
// must outlive the choice.
Choice Decide(const std::vector<measure::Advice>& reports,
              const measure::Settings& now, const std::set<std::string>& tried);

struct Ascent {
  measure::Settings start, end;
  std::vector<Step> steps;
  std::vector<Left> left;
  bool healthy = false;  // the last report found nothing worth doing

  // Findings whose fix made it slower beyond doubt, or made it fail.
  std::vector<const Step*> Failures() const;
};

struct AscentOptions {
  int pairs = 5;
  int profiles = 3;
  int max_changes = 16;
  measure::Length length;
  std::function<void(const Step&)> tell;  // after each step; may be empty
};

// What `change` promises, followed from `advice`, of steps that repeat after
// `period`. Only the figures that come from the report are filled in.
Step Promise(const measure::AdvisedChange& change,
             const measure::Advice& advice, const measure::Settings& before,
             const measure::Settings& after, int period);

// Errors: those of Bench.
absl::StatusOr<Ascent> Ascend(measure::Bench& bench,
                              const measure::Settings& start,
                              const AscentOptions& options);

}  // namespace climb
