#include "live_programs.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "support/shell.h"
#include "support/temp_folder.h"

namespace gallery {
namespace {

// If steps vary by more than a fix would gain, a rule reports nothing, so only
// runs on a quiet machine are judged. Runs are selected by their variation,
// never by their findings.
constexpr double kCalm = 0.08;
constexpr double kTooBusy = 0.10;
constexpr int kTries = 3;
constexpr int kPairs = 3;

// Runs the program a few times and returns the report of the run that varies
// least.
Spoken RunProgram(const Pattern& pattern, const std::string& flags) {
  Spoken best = RunOnce(pattern, flags);
  for (int i = 1; i < kTries && best.variation > kCalm; ++i) {
    Spoken next = RunOnce(pattern, flags);
    if (next.variation < best.variation) best = std::move(next);
  }
  return best;
}

}  // namespace

Spoken RunOnce(const Pattern& pattern, const std::string& flags) {
  stepscope::TempFolder folder;
  const std::string json = folder.At("report.json");
  const stepscope::Outcome outcome =
      stepscope::RunShell("'" GALLERY "' " + std::string(pattern.rule) + " " +
                              flags + " --quiet --json '" + json + "'",
                          folder);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  if (outcome.status != 0) return {};
  simdjson::dom::parser parser;
  simdjson::dom::element report;
  EXPECT_FALSE(parser.load(json).get(report)) << json;
  Spoken spoken;
  EXPECT_FALSE(report["steps"]["count"].get(spoken.steps));
  EXPECT_FALSE(report["steps"]["cov"].get(spoken.variation));
  simdjson::dom::array findings;
  EXPECT_FALSE(report["findings"].get(findings));
  for (simdjson::dom::element finding : findings) {
    spoken.told.push_back({std::string(finding["id"].get_c_str().value()),
                           std::string(finding["evidence"].get_c_str().value()),
                           std::string_view(finding["status"]) == "ok"});
  }
  return spoken;
}

// Other programs on the machine may cause a finding in a single pair of runs. A
// rule that is wrong is wrong in every pair.
void ExpectRight(const Pattern& pattern, const std::string& flags) {
  std::vector<std::string> wrong;
  double variation = 0;
  int judged = 0;
  for (int pair = 0; pair < kPairs; ++pair) {
    const Spoken bad = RunProgram(pattern, flags);
    const Spoken fixed = RunProgram(pattern, flags + " --fixed");
    variation = std::max(bad.variation, fixed.variation);
    if (variation > kTooBusy) continue;
    ++judged;
    wrong = Judge(pattern, bad.told, fixed.told);
    if (wrong.empty()) return;
  }
  if (judged < kPairs) {
    GTEST_SKIP() << "the machine is too busy: steps vary by " << 100 * variation
                 << " %";
  }
  for (const std::string& one : wrong) ADD_FAILURE() << one;
}

}  // namespace gallery
