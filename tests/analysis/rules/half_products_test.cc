#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::half_products_test {
namespace {

constexpr const char* kRule = "slow-half-products";

// Steps of 80 ms with a product of 134 million operations in `type`.
Report Of(const std::string& type, int64_t us) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("inputs=(" + type + "[64,1024]," + type + "[1024,1024]) aten::mm",
            us);
    text.Op("aten::sort", 80'000 - us);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(HalfProductsTest, ThisCpuHasNoInstructionsForThem) {
  const Report report = Of("c10::Half", 60'000);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // At 192 GFLOP/s it takes 0.7 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 60 - 0.70, 0.05);
  EXPECT_NE(finding->evidence.find("Products in float16"), std::string::npos)
      << finding->evidence;
  EXPECT_FALSE(IsClean(Of("c10::BFloat16", 60'000), kRule));
}

TEST(HalfProductsTest, FastOnesAndOtherTypesAreFine) {
  EXPECT_TRUE(IsClean(Of("c10::Half", 40'000), kRule));
  EXPECT_TRUE(IsClean(Of("float", 60'000), kRule));
}

}  // namespace
}  // namespace stepscope::half_products_test
