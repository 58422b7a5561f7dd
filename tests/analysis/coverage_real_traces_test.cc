// Checks that the reports on all traces in tests/data explain every large
// cause: on traces that other people recorded and on the gallery's.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/ranks.h>
#include <stepscope/read.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/explained.h"
#include "words/conclusion.h"

namespace stepscope::coverage_real_traces_test {
namespace {

std::vector<std::string> TracesBelow(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (path.ends_with(".json.gz") || path.ends_with(".json.zst") ||
        path.ends_with(".xplane.pb")) {
      paths.push_back(path);
    }
  }
  std::ranges::sort(paths);
  return paths;
}

void ExpectExplained(const Report& report, const std::string& path) {
  EXPECT_EQ(Unexplained(report), "") << path;
  // The text report says it as well as JSON.
  const auto open = std::ranges::count_if(
      report.coverage,
      [](const CauseAnswer& answer) { return !answer.why.empty(); });
  EXPECT_EQ(UnansweredInWords(report).empty(), open == 0) << path;
}

TEST(CoverageRealTracesTest, EveryTraceIsExplained) {
  const std::vector<std::string> paths = TracesBelow(STEPSCOPE_TEST_DATA);
  EXPECT_GE(paths.size(), 200u);
  size_t with_steps = 0;
  for (const std::string& path : paths) {
    const absl::StatusOr<Trace> trace = ReadTrace(path);
    ASSERT_TRUE(trace.ok()) << path << ": " << trace.status();
    const Report report = Analyze(*trace);
    with_steps += !report.coverage.empty();
    ExpectExplained(report, path);
  }
  EXPECT_GE(with_steps, 190u);
}

TEST(CoverageRealTracesTest, SeveralRanksAreExplained) {
  std::vector<RankDigest> ranks;
  for (const char* rank : {"/rank0.json.gz", "/rank1.json.gz"}) {
    const absl::StatusOr<Trace> trace = ReadTrace(
        std::string(STEPSCOPE_TEST_DATA "/traces/dlrm_v100_8ranks") + rank);
    ASSERT_TRUE(trace.ok()) << trace.status();
    ranks.push_back(DigestRank(*trace));
  }
  const Report report = AnalyzeRanks(ranks);
  EXPECT_FALSE(report.coverage.empty());
  ExpectExplained(report, "dlrm_v100_8ranks");
}

}  // namespace
}  // namespace stepscope::coverage_real_traces_test
