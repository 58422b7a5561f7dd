// Checks the advice on short recordings of the real programs in programs/,
// which run.py recorded: is the first finding right, and is anything urged that
// should not be? verdicts.txt has the expected verdict for each program. A
// verdict that got better fails the test, too, and must be entered there.
// measured.txt does the same for predicted and measured gains.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/read.h>

#include <cmath>
#include <fstream>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/ranking.h"
#include "words/labels.h"

namespace stepscope::programs_test {
namespace {

constexpr char kFolder[] = STEPSCOPE_TEST_DATA "/programs/";

// One line of verdicts.txt. keep.py explains the words.
struct Line {
  std::string name;
  std::string text;
  std::vector<std::string> expect;
  std::vector<std::string> also;
};

void PrintTo(const Line& line, std::ostream* os) { *os << line.name; }

std::vector<std::string> Ids(const std::string& words) {
  if (words == "-") return {};
  return absl::StrSplit(words, ',');
}

std::vector<Line> Lines() {
  std::vector<Line> lines;
  std::ifstream file(absl::StrCat(kFolder, "verdicts.txt"));
  for (std::string text; std::getline(file, text);) {
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    if (words.size() != 5) continue;
    lines.push_back({words[0], text, Ids(words[2]), Ids(words[3])});
  }
  return lines;
}

std::vector<Finding> Urged(const Report& report) {
  std::vector<Finding> urged = report.findings;
  std::erase_if(urged, [](const Finding& finding) {
    return finding.severity == FindingSeverity::kNote ||
           IsAboutRecording(finding.id) || finding.id == "contended-cores";
  });
  return urged;
}

std::string VerdictOn(const Line& line, const Report& report) {
  const std::vector<Finding> urged = Urged(report);
  std::set<std::string> false_ids;
  for (const Finding& finding : urged) {
    if (finding.severity > FindingSeverity::kLow &&
        !absl::c_linear_search(line.expect, finding.id) &&
        !absl::c_linear_search(line.also, finding.id)) {
      false_ids.insert(finding.id);
    }
  }
  const bool right = line.expect.empty()
                         ? false_ids.empty()
                         : !urged.empty() && absl::c_linear_search(
                                                 line.expect, urged.front().id);
  const auto list = [](const auto& ids) {
    return ids.empty() ? "-" : absl::StrJoin(ids, ",");
  };
  return absl::StrCat(line.name, right ? " right " : " wrong ",
                      list(line.expect), " ", list(line.also), " ",
                      list(false_ids));
}

// The range of a plan of one change is that of its finding.
void ExpectEqualRange(const Report& report) {
  const Plan& plan = report.plan;
  if (plan.ids.size() != 1) return;
  const auto only = absl::c_find_if(
      report.findings,
      [&](const Finding& finding) { return finding.id == plan.ids[0]; });
  ASSERT_NE(only, report.findings.end());
  const Gain& gain = only->gain;
  // The plan may take another variant of the change.
  const double gained_ms = plan.step_before_ms - plan.step_after_ms;
  if (std::abs(gained_ms - gain.expected_ms) > 1e-9) return;
  EXPECT_GE(plan.high_ms + 1e-9, plan.step_before_ms - gain.low_ms);
  EXPECT_GE(plan.low_ms + 1e-9, plan.step_before_ms - gain.high_ms);
}

class ProgramTest : public testing::TestWithParam<Line> {};

TEST_P(ProgramTest, IsJudgedAsNoted) {
  const absl::StatusOr<Trace> trace =
      ReadTrace(absl::StrCat(kFolder, GetParam().name, ".json.zst"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  const Report report = Analyze(*trace);
  EXPECT_EQ(GetParam().text, VerdictOn(GetParam(), report));
  ExpectEqualRange(report);
}

// One line of measured.txt: the measured ratio of the step after and before the
// fix, its 90 % interval, and the expected outcome of the prediction.
struct Truth {
  std::string name, text;
  double ratio = 0, low = 0, high = 0;
};

void PrintTo(const Truth& truth, std::ostream* os) { *os << truth.name; }

std::vector<Truth> Truths() {
  std::vector<Truth> truths;
  std::ifstream file(absl::StrCat(kFolder, "measured.txt"));
  for (std::string text; std::getline(file, text);) {
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    if (words.size() != 5) continue;
    truths.push_back({words[0], text, std::stod(words[1]), std::stod(words[2]),
                      std::stod(words[3])});
  }
  return truths;
}

// Computes the outcome in the same way as programs/verdict.py.
std::string OutcomeOf(const Truth& truth, const Report& report) {
  std::vector<std::string> expect;
  for (const Line& line : Lines()) {
    if (line.name == truth.name) expect = line.expect;
  }
  const auto found =
      absl::c_find_if(report.findings, [&](const Finding& finding) {
        return absl::c_linear_search(expect, finding.id);
      });
  if (found == report.findings.end() || found->gain_kind == GainKind::kNone) {
    return "no-promise";
  }
  const double step_ms = BaselineMs(report, *found);
  const auto ratio = [&](double gain_ms) { return 1 - gain_ms / step_ms; };
  const double promised = ratio(found->gain.expected_ms);
  if (found->gain_kind == GainKind::kBound) {
    return truth.high < promised                  ? "exceeded"
           : 1 - promised > 3 * (1 - truth.ratio) ? "loose"
                                                  : "kept";
  }
  const bool close = std::abs(promised / truth.ratio - 1) <= 0.15;
  const bool inside = ratio(found->gain.high_ms) <= truth.ratio &&
                      truth.ratio <= ratio(found->gain.low_ms);
  return absl::StrCat(close ? "close" : "off", inside ? "-inside" : "-outside");
}

TEST(ProgramsTest, HaveLines) {
  EXPECT_GE(Lines().size(), 30u);
  EXPECT_GE(Truths().size(), 15u);
}

class PromiseTest : public testing::TestWithParam<Truth> {};

TEST_P(PromiseTest, EndsAsNoted) {
  const Truth& truth = GetParam();
  const absl::StatusOr<Trace> trace =
      ReadTrace(absl::StrCat(kFolder, truth.name, ".json.zst"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  const std::string outcome = OutcomeOf(truth, Analyze(*trace));
  EXPECT_TRUE(absl::EndsWith(truth.text, " " + outcome))
      << truth.text << ", now: " << outcome;
}

INSTANTIATE_TEST_SUITE_P(Measured, PromiseTest, testing::ValuesIn(Truths()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Recorded, ProgramTest, testing::ValuesIn(Lines()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepscope::programs_test
