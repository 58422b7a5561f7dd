// The advice on short recordings of real programs (programs/, whose run.py
// recorded them): is the first finding right, and what is urged falsely? A line
// of verdicts.txt says of each program how it is today, so that a miss that
// is mended must be noted as well as one that is new.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/read.h>

#include <fstream>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/ranking.h"

namespace stepscope {
namespace {

constexpr char kFolder[] = STEPSCOPE_TEST_DATA "/programs/";

// One line of verdicts.txt; keep.py says what its words are.
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

TEST(ProgramsTest, HaveLines) { EXPECT_GE(Lines().size(), 30u); }

class ProgramTest : public testing::TestWithParam<Line> {};

TEST_P(ProgramTest, IsJudgedAsNoted) {
  const absl::StatusOr<Trace> trace =
      ReadTrace(absl::StrCat(kFolder, GetParam().name, ".json.zst"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(GetParam().text, VerdictOn(GetParam(), Analyze(*trace)));
}

INSTANTIATE_TEST_SUITE_P(Recorded, ProgramTest, testing::ValuesIn(Lines()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepscope
