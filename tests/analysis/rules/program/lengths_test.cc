#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::lengths_test {
namespace {

// One product per step on a number of rows. It takes 2 ms plus 10 us per row,
// or a time that grows with the square of the rows.
Report Rows(const std::vector<int>& rows, bool square = false,
            bool sizes = true, const std::string& mask = "") {
  CpuText text;
  for (int count : rows) {
    if (!mask.empty()) {
      const std::string by = std::to_string(count);
      text.Op("inputs=(float[4," + by + ",64],bool[" +
                  (mask == "causal" ? by + "," + by : "4," + by + ",1") +
                  "]) aten::masked_fill",
              1);
    }
    const std::string inputs =
        "inputs=(float[" + std::to_string(count) + ",64],float[64,64]) ";
    text.Op((sizes ? inputs : "") + "aten::mm",
            square ? count * count / 10 : 2'000 + 10 * count);
    text.EndStep();
  }
  return text.Analyzed();
}
const std::vector<int> kUneven = {100, 400, 200, 300, 100, 400, 200, 300};

TEST(UnevenLengthsTest, CountsTimeThatGrowsFasterThanTheRows) {
  const Report report = Rows(kUneven, /*square=*/true);
  const Finding* finding = Find(report, "uneven-lengths");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_EQ(finding->status, FindingStatus::kWarning);
  // Steps of 1, 4, 9 and 16 ms average 7.5 ms; 250 rows, the average, take 6.25
  // ms.
  EXPECT_NEAR(finding->gain.expected_ms, 1.25, 0.01);
  EXPECT_EQ(finding->where, "aten::mm gets inputs from [100, 64] to [400, 64]");
}

TEST(UnevenLengthsTest, StepsInProportionGainNothing) {
  const Report report = Rows(kUneven);
  const Finding* finding = Find(report, "uneven-lengths");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->status, FindingStatus::kOk);
}

TEST(UnevenLengthsTest, RecognisesPaddingByMasksOfSamples) {
  const Report report = Rows(kUneven, false, true, "padding");
  const Finding* finding = Find(report, "uneven-lengths");
  ASSERT_NE(finding, nullptr);
  // Everything except the 2 ms that a step takes without rows.
  EXPECT_NEAR(finding->gain.expected_ms, 2.5, 0.01);
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
  EXPECT_NE(finding->evidence.find("padded"), std::string::npos);
}

TEST(UnevenLengthsTest, IgnoresACausalMask) {
  EXPECT_EQ(
      Find(Rows(kUneven, false, true, "causal"), "uneven-lengths")->status,
      FindingStatus::kOk);
}

TEST(UnevenLengthsTest, IgnoresOneShorterBatch) {
  EXPECT_TRUE(
      IsClean(Rows({400, 400, 400, 400, 400, 400, 100}), "uneven-lengths"));
}

TEST(UnevenLengthsTest, NeedsMoreThanFourSteps) {
  EXPECT_TRUE(IsClean(Rows({100, 400, 200, 300}), "uneven-lengths"));
}

TEST(UnevenLengthsTest, StepsThatDoNotFollowTheWorkAreNotExplained) {
  CpuText text;
  const int us[] = {5'000, 5'000, 5'100, 5'000, 5'000, 5'000, 5'100, 5'000};
  int rows = 0;
  for (int each : us) {
    rows = rows == 100 ? 400 : 100;
    text.Op(
        "inputs=(float[" + std::to_string(rows) + ",64],float[64,64]) aten::mm",
        each);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), "uneven-lengths"));
}

TEST(UnevenLengthsTest, NeedsSizes) {
  EXPECT_FALSE(
      WhySkipped(Rows(kUneven, false, /*sizes=*/false), "uneven-lengths")
          .empty());
}

}  // namespace
}  // namespace stepscope::lengths_test
