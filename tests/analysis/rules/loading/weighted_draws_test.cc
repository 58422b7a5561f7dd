#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::weighted_draws_test {
namespace {

// Steps of 10 ms. Each line is an op of 2 ms.
Report Drawing(const std::vector<std::string>& lines) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    int64_t rest = 10'000;
    for (const std::string& line : lines) {
      text.Op(line, 2'000);
      rest -= 2'000;
    }
    text.Op("aten::mm", rest);
    text.EndStep();
  }
  return text.Analyzed();
}

std::string Draw(const std::string& weights, const std::string& drawn) {
  return "inputs=(double[" + weights + "],Scalar=\"" + drawn +
         "\",Scalar=\"True\") aten::multinomial";
}

TEST(WeightedDrawTest, FindsADrawOfAFewFromManySamples) {
  const Report report = Drawing({Draw("200000", "64")});
  const Finding* finding = Find(report, "weighted-draw");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.1);
  EXPECT_NE(finding->fix_python.find("WeightedRandomSampler"),
            std::string::npos);
  // Drawing by weight needs weights in double precision.
  EXPECT_TRUE(IsClean(report, "fp64-compute"));
}

TEST(WeightedDrawTest, IgnoresWeightsComputedInEachStep) {
  const Report report =
      Drawing({"inputs=(double[200000],Scalar=\"0.6\") aten::pow",
               Draw("200000", "64")});
  const Finding* finding = Find(report, "weighted-draw");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.1);
  EXPECT_NE(finding->fix_python.find("sum tree"), std::string::npos);
}

TEST(WeightedDrawTest, IgnoresAnEpochAndThePoliciesActions) {
  EXPECT_TRUE(IsClean(Drawing({Draw("200000", "2001")}), "weighted-draw"));
  EXPECT_TRUE(IsClean(Drawing({Draw("64,4096", "1")}), "weighted-draw"));
}

TEST(WeightedDrawTest, IgnoresOneRowOfWeightsPerSample) {
  const Report report =
      Drawing({"inputs=(float[20000],ScalarList=\"[256, -1]\") aten::expand",
               Draw("256,20000", "4")});
  const Finding* finding = Find(report, "weighted-draw");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("256 times with the same weights"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("draw all at once from one row"),
            std::string::npos);
}

TEST(WeightedDrawTest, IgnoresTheTokensOfALanguageModel) {
  EXPECT_TRUE(
      IsClean(Drawing({"inputs=(float[20000],Scalar=\"-1\") aten::softmax",
                       Draw("20000", "1")}),
              "weighted-draw"));
}

}  // namespace
}  // namespace stepscope::weighted_draws_test
