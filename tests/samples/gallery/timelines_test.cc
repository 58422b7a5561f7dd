// Simulates what no program can show on this machine. For each such rule there
// is a program in the simulator's language, with the fault and with its fix.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/ranks.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "advice/case.h"
#include "advice/trial.h"
#include "pattern.h"
#include "support/program_simulator.h"
#include "support/simulator/program_text.h"

namespace gallery::timelines_test {
namespace {

using stepscope::AdviceCase;
using stepscope::Report;

constexpr uint64_t kSeed = 5;

// Returns all cases; the gallery's own cases come first.
const std::vector<AdviceCase>& AllCases() {
  static const std::vector<AdviceCase> cases = [] {
    std::vector<AdviceCase> all;
    for (const char* folder : {GALLERY_TIMELINES, STEPSCOPE_ADVICE_CASES}) {
      absl::StatusOr<std::vector<AdviceCase>> some =
          stepscope::ReadCases(folder);
      EXPECT_TRUE(some.ok()) << some.status();
      if (some.ok()) all.insert(all.end(), some->begin(), some->end());
    }
    return all;
  }();
  return cases;
}

// Returns the first case with only this fault and with a fix.
const AdviceCase* CaseOf(const std::string& rule) {
  for (const AdviceCase& one : AllCases()) {
    const bool plants = one.plant == std::vector<std::string>{rule};
    const bool notes =
        one.plant.empty() && one.note == std::vector<std::string>{rule};
    if ((plants || notes) && one.has_fix && one.pending.empty()) return &one;
  }
  return nullptr;
}

// Simulates the program with or without its fix, with the middle of every
// range.
Report ReportOn(const AdviceCase& one, bool fixed) {
  std::map<std::string, double> values = {{"workers", 8}, {"threads", 8}};
  for (const auto& [name, range] : one.vary) {
    values[name] = (range.first + range.second) / 2;
  }
  const absl::StatusOr<std::string> text = stepscope::simulator::Substitute(
      stepscope::simulator::WithFixes(one.program, {fixed}), values);
  EXPECT_TRUE(text.ok()) << text.status();
  const absl::StatusOr<stepscope::ProgramRun> run =
      stepscope::RunProgram(text.value_or(""), {.seed = kSeed});
  EXPECT_TRUE(run.ok()) << run.status();
  if (!run.ok()) return {};
  if (run->ranks.size() == 1) return stepscope::Analyze(run->ranks[0]);
  std::vector<stepscope::RankDigest> digests;
  for (const stepscope::Trace& trace : run->ranks) {
    digests.push_back(stepscope::DigestRank(trace));
  }
  return stepscope::AnalyzeRanks(digests);
}

std::vector<std::string> SimulatedRules() {
  std::vector<std::string> rules;
  for (const Pattern* pattern : AllPatterns()) {
    if (pattern->needs_gpu) rules.emplace_back(pattern->rule);
  }
  for (const Absent& absent : AbsentRules()) rules.emplace_back(absent.rule);
  std::ranges::sort(rules);
  return rules;
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

class TimelineTest : public testing::TestWithParam<std::string> {};

TEST_P(TimelineTest, IsSeenAndItsFixToo) {
  const std::string& rule = GetParam();
  const AdviceCase* one = CaseOf(rule);
  ASSERT_NE(one, nullptr) << "no case plants it alone, with its fix";
  const bool is_note = one->plant.empty();

  const Report bad = ReportOn(*one, false);
  const auto superseded =
      std::ranges::any_of(bad.superseded, [&](const std::string& m) {
        return m.starts_with(rule + " (by ") &&
               std::ranges::any_of(one->allow, [&](const std::string& by) {
                 return m == rule + " (by " + by + ")";
               });
      });
  EXPECT_TRUE(superseded ||
              (is_note ? FindingOf(bad, rule) != nullptr : Urges(bad, rule)))
      << "missed in: " << one->name << '\n'
      << ToText(bad, {.verbose = true});
  for (const stepscope::Finding& finding : bad.findings) {
    if (finding.id == rule || finding.status == stepscope::FindingStatus::kOk) {
      continue;
    }
    EXPECT_TRUE(std::ranges::count(one->allow, finding.id) > 0)
        << finding.id << " without cause in: " << one->name << ": "
        << finding.evidence;
  }

  const Report fixed = ReportOn(*one, true);
  for (const stepscope::Finding& finding : fixed.findings) {
    const bool told = finding.status != stepscope::FindingStatus::kOk;
    if (finding.id == rule
            ? !told && !is_note
            : !told || std::ranges::count(one->allow, finding.id)) {
      continue;
    }
    ADD_FAILURE() << finding.id << " when fixed: " << one->name << ": "
                  << finding.evidence;
  }
}

INSTANTIATE_TEST_SUITE_P(Simulated, TimelineTest,
                         testing::ValuesIn(SimulatedRules()), NameOf);

}  // namespace
}  // namespace gallery::timelines_test
