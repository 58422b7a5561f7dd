#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::tiny_products_test {
namespace {

constexpr const char* kRule = "tiny-products";

// Steps of 10 ms with a product of 3 ms, inside an op of 4 ms.
Report Of(const std::string& left, const std::string& right) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Nested("aten::matmul", 4'000,
                "inputs=(float[" + left + "],float[" + right + "]) aten::bmm",
                3'000);
    text.Op("aten::sort", 6'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(TinyProductsTest, QuadraticFormsOfManyPairs) {
  const Report report = Of("196608,1,2", "196608,2,2");
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.01);
  EXPECT_NE(finding->evidence.find("multiplies 196608 pairs of matrices of "
                                   "[1, 2] and [2, 2]"),
            std::string::npos)
      << finding->evidence;
}

TEST(TinyProductsTest, OtherProductsAreLargerOrFew) {
  EXPECT_TRUE(IsClean(Of("4095,3,3", "4095,3,1"), kRule));
  EXPECT_FALSE(IsClean(Of("4096,3,3", "4096,3,1"), kRule));
  EXPECT_TRUE(IsClean(Of("8192,5,3", "8192,3,1"), kRule));
}

}  // namespace
}  // namespace stepscope::tiny_products_test
