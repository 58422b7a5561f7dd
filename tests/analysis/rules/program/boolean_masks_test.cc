#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::boolean_masks_test {
namespace {

constexpr const char* kRule = "boolean-mask";

// x[mask], 2 ms of a step of 10, in which the places of `mask` are listed.
Report Of(const std::string& mask) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Nested("inputs=(float[768,768]) aten::index", 2'000,
                "inputs=(bool[" + mask + "]) aten::nonzero", 1'500);
    text.Op("aten::sort", 8'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(BooleanMasksTest, SingleElementsArePicked) {
  const Report report = Of("768,768");
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
}

TEST(BooleanMasksTest, RowsMayBePicked) {
  EXPECT_TRUE(IsClean(Of("768"), kRule));
}

}  // namespace
}  // namespace stepscope::boolean_masks_test
