#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::sorting_test {
namespace {

constexpr const char* kRule = "double-argsort";
constexpr const char* kScores = "inputs=(float[96,1500]) aten::argsort";
constexpr const char* kOrder = "inputs=(long int[96,1500]) aten::argsort";

// Steps of 10 ms, in which each of `ops` takes 1 ms.
Report Of(const std::vector<std::string>& ops) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    for (const std::string& op : ops) text.Op(op, 1'000);
    text.Op("aten::mm", 10'000 - 1'000 * static_cast<int64_t>(ops.size()));
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DoubleArgsortTest, AdvisesToCountForTheRankOfOneElement) {
  const Report report =
      Of({kScores, kOrder,
          "inputs=(long int[96,1500],Scalar=\"1\",long int[96,1]) "
          "aten::gather"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_NE(finding->fix_python.find("sum(1)"), std::string::npos);
}

TEST(DoubleArgsortTest, AdvisesToInvertTheOrderForAllRanks) {
  const Report report = Of({kScores, kOrder});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.01);
  EXPECT_NE(finding->fix_python.find("scatter_"), std::string::npos);
}

TEST(DoubleArgsortTest, IgnoresOneSortAndTwoSortsOfScores) {
  EXPECT_TRUE(IsClean(Of({kScores}), kRule));
  EXPECT_TRUE(IsClean(Of({kScores, kScores}), kRule));
  EXPECT_TRUE(IsClean(
      Of({kScores, "inputs=(long int[96,1500]) aten::eq", kOrder}), kRule));
}

// Steps of 10 ms that sample a token, without sizes.
Report Sampling(const std::vector<std::string>& ops) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    text.Op("aten::mm", 10'000 - 500 * static_cast<int64_t>(ops.size()));
    for (const std::string& op : ops) text.Op(op, 500);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(SortedSamplingTest, FindsTopPThatSortsAllTokens) {
  const Report report =
      Sampling({"aten::sort", "aten::softmax", "aten::cumsum", "aten::le",
                "aten::masked_fill_", "aten::scatter", "aten::multinomial"});
  const Finding* finding = Find(report, "sorted-sampling");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.01);
  EXPECT_NE(finding->fix_python.find("flashinfer"), std::string::npos);
}

// The token is drawn in sorted order.
TEST(SortedSamplingTest, NeedsNoScatter) {
  const Report report =
      Sampling({"aten::sort", "aten::softmax", "aten::cumsum", "aten::gt",
                "aten::masked_fill_", "aten::multinomial", "aten::gather"});
  const Finding* finding = Find(report, "sorted-sampling");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.5, 0.01);
}

TEST(SortedSamplingTest, LeavesOtherSorts) {
  EXPECT_TRUE(IsClean(Sampling({"aten::sort", "aten::cumsum", "aten::softmax"}),
                      "sorted-sampling"));
  EXPECT_TRUE(IsClean(
      Sampling({"aten::topk", "aten::softmax", "aten::cumsum", "aten::le"}),
      "sorted-sampling"));
}

}  // namespace
}  // namespace stepscope::sorting_test
