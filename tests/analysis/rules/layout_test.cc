#include "support/compute_text.h"
#include "rule_testing.h"

namespace stepscope {
namespace {

constexpr const char* kConv =
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc";
constexpr const char* kTurn =
    "void cudnn::ops::nchwToNhwcKernel<float, float, float>()";
constexpr const char* kFirst = "{200704,3136,56,1}";
constexpr const char* kLast = "{200704,1,3584,64}";

Report With(double turn_us, const std::string& channels = "64",
            const std::string& strides = "", double host_us = 300) {
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    text.Op(
        "aten::cudnn_convolution",
        "(float[32," + channels + ",56,56]" + strides + ",float[64," +
            channels + ",3,3]" + (strides.empty() ? "" : "{576,9,3,1}") + ")",
        {{kTurn, turn_us / 2}, {kTurn, turn_us / 2}, {kConv, 1'000}}, host_us);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(LayoutTransposeTest, FiresAndWinsTheTransposes) {
  const Report report = With(250);
  const Finding* finding = Find(report, "layout-transpose");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kHigh);
  EXPECT_NEAR(finding->gain.expected_ms, 0.25, 0.02);
  EXPECT_NE(finding->evidence.find("2 kernels"), std::string::npos);
}

TEST(LayoutTransposeTest, StaysSilentBelowThreePercent) {
  EXPECT_TRUE(IsClean(With(30), "layout-transpose"));
  EXPECT_FALSE(IsClean(With(32), "layout-transpose"));
}

TEST(LayoutTransposeTest, LeavesTheStemAlone) {
  EXPECT_TRUE(IsClean(With(250, "3"), "layout-transpose"));
}

TEST(LayoutTransposeTest, SaysWhichSideIsStillChannelsFirst) {
  EXPECT_NE(Find(With(250, "64", kFirst), "layout-transpose")
                ->evidence.find("Model and input"),
            std::string::npos);
  EXPECT_NE(Find(With(250, "64", kLast), "layout-transpose")
                ->evidence.find("convert the model"),
            std::string::npos);
}

TEST(LayoutTransposeTest, IsANoteBehindABusyHost) {
  const Report report = With(250, "64", "", 8'000);
  ASSERT_NE(Find(report, "layout-transpose"), nullptr);
  EXPECT_EQ(Find(report, "layout-transpose")->severity, FindingSeverity::kNote);
}

}  // namespace
}  // namespace stepscope
