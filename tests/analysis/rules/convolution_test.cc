#include "rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::convolution_test {
namespace {

constexpr const char* kConv =
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc";
constexpr const char* kOther = "void at::native::reduce_kernel<512, 1>()";

std::string Input(int64_t size) {
  return "(float[32,64," + std::to_string(size) + "," + std::to_string(size) +
         "],float[64,64,3,3])";
}

struct Run {
  std::string settings = "settings 1 step=0 cudnn_benchmark=0 deterministic=0";
  double conv_us = 1'000;
  double other_us = 1'000;
  bool varying = false;
  std::string op = "aten::cudnn_convolution";
};
Report With(const Run& run) {
  ComputeText text;
  if (!run.settings.empty()) text.Line(run.settings);
  for (int i = 0; i < 3; ++i) {
    text.Op(run.op, Input(run.varying ? 56 + i : 56), {{kConv, run.conv_us}});
    text.Op("aten::sum", "", {{kOther, run.other_us}});
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(CudnnBenchmarkTest, HintsAtTheSearch) {
  const Report report = With({});
  const Finding* finding = Find(report, "cudnn-benchmark-off");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_LE(finding->severity, FindingSeverity::kMedium);
  EXPECT_NEAR(finding->gain.expected_ms, 0.135, 0.01);
  EXPECT_EQ(finding->gain.low_ms, 0);
  EXPECT_NEAR(finding->gain.high_ms, 0.27, 0.01);
}

TEST(CudnnBenchmarkTest, StaysSilentBelowAFifthOfTheComputeTime) {
  EXPECT_TRUE(
      IsClean(With({.conv_us = 199, .other_us = 801}), "cudnn-benchmark-off"));
  EXPECT_FALSE(
      IsClean(With({.conv_us = 201, .other_us = 799}), "cudnn-benchmark-off"));
}

TEST(CudnnBenchmarkTest, StaysSilentWhereItIsOnOrUnwanted) {
  EXPECT_TRUE(IsClean(With({.settings = "settings 1 step=0 cudnn_benchmark=1"}),
                      "cudnn-benchmark-off"));
  EXPECT_TRUE(IsClean(
      With({.settings = "settings 1 step=0 cudnn_benchmark=0 deterministic=1"}),
      "cudnn-benchmark-off"));
  EXPECT_TRUE(IsClean(With({.varying = true}), "cudnn-benchmark-off"));
}

TEST(CudnnBenchmarkTest, StaysSilentOnALinearModel) {
  EXPECT_TRUE(IsClean(With({.op = "aten::mm"}), "cudnn-benchmark-off"));
}

TEST(CudnnBenchmarkTest, CannotLookAtAFileWithoutSettings) {
  EXPECT_NE(WhySkipped(With({.settings = ""}), "cudnn-benchmark-off"), "");
}

// Steps of convolutions. Those in `searched` launch `kernels` algorithms and
// time them, with calls of `timing`. The algorithms are `different` at most.
Report Searching(const std::vector<int>& searched, int kernels = 6,
                 bool times = true, const std::string& tried = kConv,
                 const std::string& timing = "cudaEventRecord",
                 int different = 100) {
  ComputeText text;
  for (int i = 0; i < 5; ++i) {
    const bool search = std::ranges::count(searched, i) > 0;
    text.Begin();
    for (int k = 0; k < (search ? kernels : 1); ++k) {
      if (search && times) text.Call(timing, 200);
      text.Launch({tried + std::to_string(k % different), 300});
    }
    text.End("aten::cudnn_convolution", Input(search ? 60 + i : 56), 10);
    for (int k = 0; k < 20; ++k) {
      text.Op("aten::cudnn_convolution", Input(56), {{kConv, 300}}, 250);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(ConvRetuningTest, FiresOnSearchesForNewSizes) {
  const Report report = Searching({1, 3});
  const Finding* finding = Find(report, "conv-retuning");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("2 searches"), std::string::npos);
}

// Steps with a search take 8.9 ms, the others 6.3: the device also waits
// behind the call.
TEST(ConvRetuningTest, CountsHowMuchLongerStepsWithASearchAre) {
  ComputeText text;
  for (int i = 0; i < 4; ++i) {
    const bool search = i % 2 == 1;
    text.Begin();
    for (int k = 0; k < (search ? 6 : 1); ++k) {
      if (search) text.Call("cudaEventRecord", 5);
      text.Launch({kConv + std::to_string(k), 300});
    }
    text.End("aten::cudnn_convolution", "", 10);
    if (search) text.Pass(1'100);
    text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 6'000}}, 10);
    text.Call("cudaDeviceSynchronize", search ? 6'700 : 6'300);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "conv-retuning");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  const double longer = (report.step_times[1].ms + report.step_times[3].ms -
                         report.step_times[0].ms - report.step_times[2].ms) /
                        4;
  EXPECT_GT(longer, 0.7);
  EXPECT_NEAR(finding->gain.expected_ms, longer, 1e-6);
}

// Two of ten steps are slow because of their searches.
TEST(ConvRetuningTest, RefersToAllStepsWhereSlowOnesAreLeftOut) {
  ComputeText text;
  for (int i = 0; i < 10; ++i) {
    const bool search = i == 4 || i == 7;
    text.Begin();
    for (int k = 0; k < (search ? 60 : 1); ++k) {
      if (search) text.Call("cudaEventRecord", 5);
      text.Launch({kConv + std::to_string(k), 1'000});
    }
    text.End("aten::cudnn_convolution", Input(search ? 60 + i : 56), 10);
    text.Call("cudaDeviceSynchronize", search ? 60'000 : 1'000);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  EXPECT_EQ(report.steps.steady, 8);
  const Finding* finding = Find(report, "conv-retuning");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->baseline_ms, report.steps.all_mean_ms, 0.1);
  EXPECT_GT(finding->gain.expected_ms, report.steps.mean_ms);
  EXPECT_LT(finding->gain.expected_ms, finding->baseline_ms);
}

TEST(ConvRetuningTest, OneSearchIsANote) {
  const Report report = Searching({4});
  const Finding* finding = Find(report, "conv-retuning");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
  EXPECT_NE(finding->fix_python.find("drop_last"), std::string::npos);
}

TEST(ConvRetuningTest, FourKernelsAreNoSearch) {
  EXPECT_TRUE(IsClean(Searching({1, 3}, 4), "conv-retuning"));
  EXPECT_FALSE(IsClean(Searching({1, 3}, 5), "conv-retuning"));
}

TEST(ConvRetuningTest, FewKernelsAreASearchIfTheirTimesAreRead) {
  const auto with = [](const std::string& timing) {
    return Searching({1, 3}, 8, true, kConv, timing, 3);
  };
  EXPECT_FALSE(IsClean(with("cudaEventSynchronize"), "conv-retuning"));
  EXPECT_TRUE(IsClean(with("cudaEventRecord"), "conv-retuning"));
}

TEST(ConvRetuningTest, ManyKernelsThatAreNotTimedAreNoSearch) {
  EXPECT_TRUE(IsClean(Searching({1, 3}, 6, false), "conv-retuning"));
}

// Some tried algorithms use no Tensor Cores. cuDNN will not choose them.
TEST(ConvRetuningTest, IgnoresAlgorithmsThatAreOnlyTried) {
  const auto blames = [](bool times) {
    const Report report =
        Searching({0, 1, 2, 3, 4}, 24, times,
                  "volta_fp16_scudnn_winograd_fp16_fp32_128x128_");
    const Finding* finding = Find(report, "tensor-cores-idle");
    return finding != nullptr &&
           finding->evidence.find("without Tensor Cores") != std::string::npos;
  };
  EXPECT_FALSE(blames(true));
  EXPECT_TRUE(blames(false));
}

// Steps of 10 ms, of which a kernel takes 4.
Report Running(const std::string& kernel, const std::string& op) {
  ComputeText text;
  for (int i = 0; i < 4; ++i) {
    text.Op(op, "", {{kernel, 4'000}}, 20);
    text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 6'000}}, 20);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(FallbackConvolutionTest, NamesTheKernelsAndWhatReplacesThem) {
  const auto fix = [](const std::string& kernel) {
    const Report report = Running(kernel, "aten::_convolution");
    const Finding* finding = Find(report, "fallback-convolution");
    if (finding == nullptr) return std::string();
    EXPECT_EQ(finding->gain_kind, GainKind::kBound);
    EXPECT_NEAR(finding->gain.expected_ms, 4, 0.05);
    return finding->fix_python;
  };
  EXPECT_NE(fix("naive_conv_ab_nonpacked_fwd_ncdhw_half_double_half")
                .find("MIOPEN_FIND_MODE"),
            std::string::npos);
  EXPECT_NE(fix("void at::native::conv_depthwise2d_grad_weight_kernel<float>()")
                .find("channels_last"),
            std::string::npos);
}

TEST(FallbackConvolutionTest, LeavesUnfoldingThatIsNoConvolution) {
  const std::string unfold = "void at::native::im2col_kernel<float>()";
  EXPECT_FALSE(
      IsClean(Running(unfold, "aten::slow_conv2d"), "fallback-convolution"));
  EXPECT_TRUE(IsClean(Running(unfold, "aten::im2col"), "fallback-convolution"));
  EXPECT_TRUE(
      IsClean(Running(kConv, "aten::_convolution"), "fallback-convolution"));
}

}  // namespace
}  // namespace stepscope::convolution_test
