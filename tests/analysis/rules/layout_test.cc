#include "rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::layout_test {
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

// A convolution that copies its input first, for kernels of `format`. `inside`:
// of the convolution; otherwise the copy is a cast of the weights by autocast.
Report Copying(double copy_us, const std::string& format, bool inside = true) {
  ComputeText text;
  const std::string image = "(float[32,64,56,56])";
  const std::string copy =
      "(float[32,64,56,56],float[32,64,56,56],Scalar=\"False\")";
  const std::string both = "(float[32,64,56,56],float[64,64,3,3])";
  for (int i = 0; i < 3; ++i) {
    text.Begin();
    text.Pass(1);
    text.Begin();
    text.Pass(1);
    text.Op("aten::copy_", copy, {{"elementwise_kernel<direct_copy>", copy_us}},
            40);
    text.End(inside ? "aten::clone" : "aten::_to_copy", image, 60);
    text.Op("aten::cudnn_convolution", both,
            {{"turing_fp16_s1688cudnn_fp16_128x128_" + format, 1'000}}, 50);
    text.End("aten::_convolution", both, 200);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(LayoutTransposeTest, SeesCopiesThatConvolutionsMake) {
  const Report report = Copying(250, "nhwc_tn_v1");
  const Finding* finding = Find(report, "layout-transpose");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 0.24, 0.02);
  EXPECT_NE(finding->fix_python.find("channel_shuffle"), std::string::npos)
      << finding->fix_python;
  EXPECT_NE(Find(Copying(250, "nchw_tn_v1"), "layout-transpose")
                ->fix_python.find("model.to(memory_format"),
            std::string::npos);
  EXPECT_TRUE(IsClean(Copying(30, "nhwc_tn_v1"), "layout-transpose"));
  EXPECT_TRUE(IsClean(Copying(250, "nhwc_tn_v1", false), "layout-transpose"));
}

TEST(LayoutTransposeTest, IsANoteBehindABusyHost) {
  const Report report = With(250, "64", "", 8'000);
  ASSERT_NE(Find(report, "layout-transpose"), nullptr);
  EXPECT_EQ(Find(report, "layout-transpose")->severity, FindingSeverity::kNote);
}

// Two convolutions of 1 ms each on a CPU, and a copy of a 2 MB image from
// format `from` to channels-first in `copy_us`.
Report OnCpu(int64_t copy_us, const std::string& from,
             const std::string& around = "aten::convolution_backward",
             const std::string& norm = "aten::batch_norm") {
  const std::string image = "float[16,32,32,32]";
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 2; ++k) {
      text.Op("inputs=(" + image +
                  ",float[32,32,3,3],,=\"[1, 1]\",=\"[1, "
                  "1]\",=\"[1, 1]\",=\"1\") aten::mkldnn_convolution",
              1'000);
    }
    text.Op(norm, 10);
    text.Nested(around, copy_us + 10,
                "inputs=(" + image + "{32768,1024,32,1}," + image + from +
                    ") aten::copy_",
                copy_us);
    text.EndStep();
  }
  return text.Analyzed();
}
constexpr const char* kLastOnCpu = "{32768,1,1024,32}";

TEST(LayoutTransposeTest, OnACpuSeesCopiesBetweenTheFormats) {
  const Report report = OnCpu(100, kLastOnCpu);
  const Finding* finding = Find(report, "layout-transpose");
  ASSERT_NE(finding, nullptr) << WhySkipped(report, "layout-transpose");
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Only the copy is saved: both convolutions already run at the best rate in
  // the run.
  EXPECT_NEAR(finding->gain.expected_ms, 0.1, 0.02);
  EXPECT_NE(finding->fix_python.find("channels_last"), std::string::npos);
  // The format may also cost time, however large the copies are.
  const Report large = OnCpu(1'000, kLastOnCpu);
  EXPECT_EQ(Find(large, "layout-transpose")->severity, FindingSeverity::kLow);
  EXPECT_EQ(Find(large, "layout-transpose")->confidence, Confidence::kHint);
}

TEST(LayoutTransposeTest, OnACpuStaysSilentBelowThreePercentAndElsewhere) {
  EXPECT_TRUE(IsClean(OnCpu(50, kLastOnCpu), "layout-transpose"));
  EXPECT_TRUE(IsClean(OnCpu(100, "{32768,1024,32,1}"), "layout-transpose"));
  EXPECT_TRUE(
      IsClean(OnCpu(100, kLastOnCpu, "aten::flatten"), "layout-transpose"));
}

// These norms take several times as long on channels-last tensors.
TEST(LayoutTransposeTest, OnACpuLeavesGroupNormalisationAlone) {
  for (const char* norm : {"aten::group_norm", "aten::instance_norm"}) {
    EXPECT_TRUE(
        IsClean(OnCpu(100, kLastOnCpu, "aten::convolution_backward", norm),
                "layout-transpose"));
  }
}

// Interpolation computes in channels-last format. It converts a channels-first
// image; of a channels-last image, it only converts the gradient.
TEST(LayoutTransposeTest, OnACpuSeesTheConversionsOfInterpolation) {
  const auto upsampling = [](const std::string& strides) {
    return OnCpu(
        100, kLastOnCpu,
        "inputs=(float[16,32,32,32]" + strides + ") aten::upsample_nearest2d");
  };
  const Report report = upsampling("{32768,1024,32,1}");
  const Finding* finding = Find(report, "layout-transpose");
  ASSERT_NE(finding, nullptr) << WhySkipped(report, "layout-transpose");
  EXPECT_TRUE(finding->evidence.starts_with("Interpolation copies"))
      << finding->evidence;
  EXPECT_EQ(finding->where, "aten::upsample_nearest2d");
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_TRUE(IsClean(upsampling(kLastOnCpu), "layout-transpose"));
}

// conv1d runs as a convolution of images with one row, which oneDNN converts.
// But its tensors have no channels-last format.
TEST(LayoutTransposeTest, OnACpuLeavesConvolutionsOfSequencesAlone) {
  const auto backward_of = [](const std::string& input) {
    return OnCpu(100, kLastOnCpu,
                 "inputs=(float" + input + ",float" + input +
                     ") aten::convolution_backward");
  };
  EXPECT_TRUE(IsClean(backward_of("[16,32,1024]"), "layout-transpose"));
  EXPECT_FALSE(IsClean(backward_of("[16,32,32,32]"), "layout-transpose"));
}

}  // namespace
}  // namespace stepscope::layout_test
