#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::fp8_test {
namespace {

struct Product {
  std::string kernel = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NTN";
  std::string inputs = "(c10::BFloat16[8192,4096],c10::BFloat16[4096,8192])";
  double rest_us = 500;
  std::string device = "NVIDIA H100 80GB HBM3";
  int major = 9;
};

// Three steps: a product of 1 ms, and other kernels.
Report With(const Product& product) {
  ComputeText text(product.device, product.major, 0);
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::mm", product.inputs, {{product.kernel, 1'000}});
    text.Op("aten::relu", "",
            {{"void at::native::vectorized_elementwise_kernel<4, float>()",
              product.rest_us}});
    text.EndStep();
  }
  return text.Analyzed();
}
constexpr const char* kFp8 = "fp8-candidate";

TEST(Fp8CandidateTest, IsAHintOnHopper) {
  const Report report = With({});
  const Finding* finding = Find(report, kFp8);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 0.5, 0.01);
  EXPECT_LE(finding->severity, FindingSeverity::kMedium);
}

TEST(Fp8CandidateTest, FiresFromHalfOfTheComputeTime) {
  EXPECT_FALSE(IsClean(With({.rest_us = 990}), kFp8));
  EXPECT_TRUE(IsClean(With({.rest_us = 1'010}), kFp8));
}

TEST(Fp8CandidateTest, StaysSilentWhereFp8WouldNotHelp) {
  const auto inputs = [](const std::string& text) {
    return With({.inputs = text});
  };
  // Small, not a multiple of 16, float32, and an older device.
  EXPECT_TRUE(IsClean(
      inputs("(c10::BFloat16[8192,2048],c10::BFloat16[2048,8192])"), kFp8));
  EXPECT_TRUE(IsClean(
      inputs("(c10::BFloat16[8200,4096],c10::BFloat16[4096,8192])"), kFp8));
  EXPECT_TRUE(IsClean(With({.kernel = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n",
                            .inputs = "(float[8192,4096],float[4096,8192])"}),
                      kFp8));
  EXPECT_TRUE(
      IsClean(With({.device = "NVIDIA A100-SXM4-80GB", .major = 8}), kFp8));
}

}  // namespace
}  // namespace stepscope::fp8_test
