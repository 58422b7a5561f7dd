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

#include "context/analysis_context.h"

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
  std::vector<Found> found;  // empty: looked and clean
  std::string skipped;       // why; empty if it looked
};
inline Verdict Clean() { return {}; }
inline Verdict Skip(std::string why) {
  return {.found = {}, .skipped = std::move(why)};
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
  Verdict (*check)(const AnalysisContext&);
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

}  // namespace stepscope
