// Rule: one question asked of a Trace, with three answers: found, looked and
// clean, could not look. A family is one file of rules/; the build makes the
// list of families from the file names.
#pragma once

#include <stepscope/report.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measured.h"

namespace stepscope {

// A finding and the change it proposes. `edits` are alternatives for the same
// change, the best one alone first; empty if nothing is to be replayed.
struct Found {
  Finding finding;
  std::vector<Edit> edits;
  bool regardless = false;  // a matter of right results or of risk: told even
                            // where it wins no time
};

struct Verdict {
  std::vector<Found> found;    // empty: looked and clean
  std::string could_not_look;  // why; empty if it looked
};
inline Verdict Clean() { return {}; }
inline Verdict CouldNotLookBecause(std::string why) {
  return {.found = {}, .could_not_look = std::move(why)};
}
inline Verdict Fire(Finding finding, std::vector<Edit> edits = {}) {
  Verdict verdict;
  verdict.found.push_back({std::move(finding), std::move(edits)});
  return verdict;
}

// Where a rule applies.
enum class Runs : uint8_t { kAll, kGpuOnly, kCpuOnly };

struct Rule {
  const char* id;        // "sync-data-loading"
  const char* question;  // what it asks, in one sentence
  Runs runs = Runs::kAll;
  bool needs_steps = true;
  std::initializer_list<Kind> needs;  // kinds that must have been watched
  Verdict (*check)(const Measured&);
  const char* reference;  // guide and section
  // For `stepscope explain`: when it fires, with the thresholds and where they
  // come from; what it stays silent about; the change in general words.
  const char* detect = "";
  const char* avoid = "";
  const char* fix_cpp = "";
  const char* fix_python = "";
  // Asked of all ranks of a run together; nullptr for rules about one rank.
  Verdict (*check_ranks)(const RankComparison&) = nullptr;
};

// The gain of `edit` as replay predicts it, with the range that what the model
// cannot know and the noise of the steps leave. REQUIRES: replay speaks.
Gain PredictGain(const Measured& measured, const Edit& edit);

// The same for changes that may also lose: nothing is cut off at 0.
Gain PredictDifference(const Measured& measured, const Edit& edit);

// By which the mean step strays by chance: two standard errors.
double NoiseOfMeanMs(const Measured& measured);

// A finding with its gain filled in: predicted by `edit` where replay speaks
// and `edit` changes something, else at most `bound_ns` per step.
Finding Sized(const Measured& measured, Finding finding, const Edit& edit,
              double bound_ns);

// The smallest gain per step worth telling (rules.md 2.5), in ms.
double GateMs(const Measured& measured);

}  // namespace stepscope
