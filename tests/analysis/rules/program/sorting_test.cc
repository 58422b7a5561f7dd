#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
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

// Steps with 5 ms of products on a GPU and, for each of `rows`, 3 ms for the
// gradient of x[index], or for the program's own op `own`.
Report Gathered(const std::string& kernel, const std::vector<std::string>& rows,
                const std::string& own = "") {
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 5'000}});
    for (const std::string& added : rows) {
      text.Begin();
      text.Pass(1);
      text.Op("aten::_index_put_impl_",
              "(float[20000,128],Scalar," + added +
                  ",Scalar=\"True\",Scalar=\"True\")",
              {{"cub::DeviceRadixSortOnesweepKernel", 500}, {kernel, 2'500}});
      if (own.empty()) {
        text.End("IndexBackward0", "", 0, "kind=backward");
      } else {
        text.End(own);
      }
    }
    text.EndStep();
  }
  return text.Analyzed();
}
constexpr const char* kSorted =
    "void at::native::(anonymous namespace)::indexing_backward_kernel<float>()";

TEST(SortedIndexGradientTest, CountsWhatAtomicsWouldMove) {
  const Report report = Gathered(kSorted, {"float[100000,128]"});
  const Finding* finding = Find(report, "sorted-index-gradient");
  ASSERT_NE(finding, nullptr);
  // Moving 51 MB three times at 80 % of 2039 GB/s takes 0.09 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 3 - 0.094, 0.02);
  EXPECT_NE(finding->fix_python.find("index_select"), std::string::npos);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
}

TEST(SortedIndexGradientTest, IsABoundWithoutSizes) {
  const Report report = Gathered(kSorted, {"Scalar"});
  const Finding* finding = Find(report, "sorted-index-gradient");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
}

// What is known of the other index does not count either: a bound that is in
// part a prediction would be neither.
TEST(SortedIndexGradientTest, IsABoundIfOneOfTwoSizesIsUnknown) {
  const std::string known = "float[100000,128]";
  for (const auto& rows : {std::vector<std::string>{known, "Scalar"},
                           std::vector<std::string>{"Scalar", known}}) {
    const Report report = Gathered(kSorted, rows);
    const Finding* finding = Find(report, "sorted-index-gradient");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->gain_kind, GainKind::kBound);
    EXPECT_NEAR(finding->gain.expected_ms, 6, 0.01) << rows.front();
  }
}

TEST(SortedIndexGradientTest, SeesTheProgramsOwnIndexPut) {
  const Report report =
      Gathered(kSorted, {"float[100000,128]"}, "aten::index_put_");
  const Finding* finding = Find(report, "sorted-index-gradient");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("Index_put with accumulate=True sorts"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(finding->fix_python.starts_with("x.index_add_(0, index, rows)"))
      << finding->fix_python;
}

TEST(SortedIndexGradientTest, StaysSilentAboutOtherKernels) {
  EXPECT_TRUE(IsClean(Gathered("index_put_kernel", {"float[100000,128]"}),
                      "sorted-index-gradient"));
}

}  // namespace
}  // namespace stepscope::sorting_test
