#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::half_products_test {
namespace {

constexpr const char* kRule = "slow-half-products";

// Steps of 80 ms with a product of 134 million operations in `type`.
Report Of(const std::string& type, int64_t us, const std::string& op = "") {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op(op.empty() ? "inputs=(" + type + "[64,1024]," + type +
                             "[1024,1024]) aten::mm"
                       : op,
            us);
    text.Op("aten::sort", 80'000 - us);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(HalfProductsTest, FindsProductsWithoutInstructionsOnThisCpu) {
  const Report report = Of("c10::Half", 60'000);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // The product needs 0.7 ms at 192 GFLOP/s.
  EXPECT_NEAR(finding->gain.expected_ms, 60 - 0.70, 0.05);
  EXPECT_NE(finding->evidence.find("Products in float16"), std::string::npos)
      << finding->evidence;
  EXPECT_FALSE(IsClean(Of("c10::BFloat16", 60'000), kRule));
}

// A CPU without instructions for the type is slow in all sizes. Here, products
// of the same sizes are fast in forward and slow in backward.
TEST(HalfProductsTest, IsAHintWhereOtherProductsAreFast) {
  CpuText text;
  const std::string product =
      "inputs=(c10::BFloat16[64,1024],c10::BFloat16[1024,1024]) aten::mm";
  for (int step = 0; step < 4; ++step) {
    text.Op(product, 1'000);
    text.Op(product, 60'000);
    text.Op("aten::sort", 19'000);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
  EXPECT_NE(finding->fix_python.find("get_num_threads"), std::string::npos);
}

TEST(HalfProductsTest, IgnoresFastProductsAndOtherTypes) {
  EXPECT_TRUE(IsClean(Of("c10::Half", 40'000), kRule));
  EXPECT_TRUE(IsClean(Of("float", 60'000), kRule));
}

TEST(HalfProductsTest, DepthwiseConvolutionsAreSlowInAnyType) {
  const auto convolution = [](const std::string& weight, int groups) {
    return "inputs=(c10::BFloat16[8,64,32,32],c10::BFloat16[" + weight +
           "],,ScalarList=\"[1, 1]\",ScalarList=\"[1, 1]\",ScalarList=\"[1, "
           "1]\",Scalar=\"" +
           std::to_string(groups) + "\") aten::conv2d";
  };
  EXPECT_FALSE(IsClean(Of("", 75'000, convolution("16,64,3,3", 1)), kRule));
  EXPECT_TRUE(IsClean(Of("", 75'000, convolution("64,1,3,3", 64)), kRule));
}

}  // namespace
}  // namespace stepscope::half_products_test
