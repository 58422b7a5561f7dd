#include <gtest/gtest.h>

#include <string>

#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::attention_masks_test {
namespace {

constexpr char kRule[] = "attention-mask";

struct How {
  std::string device = "NVIDIA A100-SXM4-80GB";
  int major = 8;
  std::string type = "c10::BFloat16";
  std::string mask = "[1,1,2048,2048]";
  bool sized = true;
  std::string kernel = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80";
};

// Four steps of one attention of 2.6 ms beside 1 ms of other work.
Report Of(const How& how) {
  ComputeText text(how.device, how.major, 0);
  const std::string query = how.type + "[8,16,2048,64]";
  const std::string inputs =
      "(" + query + "," + query + "," + query + "," + how.type + how.mask + ")";
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::_scaled_dot_product_efficient_attention",
            how.sized ? inputs : "", {{how.kernel, 2'600}}, 10);
    text.Op("aten::relu", "", {{"elementwise", 1'000}}, 10);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(AttentionMaskTest, SizesTheFlashKernelWithoutTheHiddenHalf) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // 137 GFLOP, 53 % of them below the diagonal, at half of 312 TFLOP/s.
  EXPECT_NEAR(finding->gain.expected_ms, 2.6 - 0.47, 0.02);
  EXPECT_NE(finding->evidence.find("[1, 1, 2048, 2048]"), std::string::npos);
}

TEST(AttentionMaskTest, IsABoundWithoutSizes) {
  const Report report = Of({.sized = false});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2.6 * 0.75, 0.01);
}

TEST(AttentionMaskTest, IgnoresWhatTheFlashKernelDoesNotTake) {
  // Padding, another reason for the memory-efficient kernel, float32, and a
  // device without a flash kernel.
  EXPECT_TRUE(IsClean(Of({.mask = "[8,1,1,2048]"}), kRule));
  EXPECT_TRUE(IsClean(Of({.mask = ""}), kRule));
  EXPECT_TRUE(IsClean(Of({.type = "float"}), kRule));
  EXPECT_TRUE(IsClean(
      Of({.sized = false, .kernel = "fmha_cutlassF_f32_aligned_64x64_rf_sm80"}),
      kRule));
  EXPECT_TRUE(IsClean(Of({.device = "Tesla T4", .major = 7}), kRule));
}

}  // namespace
}  // namespace stepscope::attention_masks_test
