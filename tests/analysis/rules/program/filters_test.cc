#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::filters_test {
namespace {

constexpr const char* kRule = "direct-convolution";

struct Filter {
  std::string input = "float[8,16,8192]", weight = "float[16,1,1024]";
  std::string stride = "[1]", padding = "[0]", groups = "16";
  std::string wanted = "[True, False, False]";  // gradients to compute
};

// Steps of 10 ms; the convolution and its node take half.
Report Of(const Filter& how) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    const std::string sequence = "sequence=" + std::to_string(i);
    text.Op("aten::sort", 5'000);
    text.Op(sequence + " inputs=(" + how.input + "," + how.weight +
                ",-,ScalarList=\"" + how.stride + "\",ScalarList=\"" +
                how.padding + "\",ScalarList=\"[1]\",Scalar=\"" + how.groups +
                "\") aten::conv1d",
            2'000);
    text.Nested("kind=backward " + sequence + " ConvolutionBackward0", 3'000,
                "inputs=(-,-,-,-,-,-,-,-,-,-,ScalarList=\"" + how.wanted +
                    "\") aten::convolution_backward",
                2'990);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DirectConvolutionTest, AdvisesFftsForLongFilters) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Direct: 8 x 16 x 7169 results of 1024 terms each. By FFT: 8 x 16 transforms
  // and as many inverse ones, 16 transforms of filters, and 8 x 16 products of
  // spectra with 4096 numbers.
  const double direct = 2.0 * 8 * 16 * 7169 * 1024;
  const double spectra =
      (2 * 8 * 16 + 16) * 2.5 * 8192 * 13 + 8.0 * 8 * 16 * 4096;
  EXPECT_NEAR(finding->gain.expected_ms, 5 * (1 - spectra / direct), 0.01);
  EXPECT_NE(finding->evidence.find("[16, 1, 1024]"), std::string::npos);
}

TEST(DirectConvolutionTest, AdvisesFftsForImages) {
  const Report report = Of({.input = "float[8,16,128,128]",
                            .weight = "float[16,1,63,63]",
                            .stride = "[1, 1]",
                            .padding = "[31, 31]"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("rfft2"), std::string::npos);
}

TEST(DirectConvolutionTest, NeedsTenTimesFewerOperations) {
  const auto with = [](const std::string& taps) {
    return Of({.weight = "float[16,1," + taps + "]"});
  };
  EXPECT_TRUE(IsClean(with("80"), kRule));
  EXPECT_TRUE(IsClean(with("370"), kRule));
  EXPECT_FALSE(IsClean(with("390"), kRule));
}

TEST(DirectConvolutionTest, StaysSilentOnFewResults) {
  EXPECT_TRUE(IsClean(Of({.stride = "[512]"}), kRule));
}

// Each pair of channels needs its own product of spectra.
TEST(DirectConvolutionTest, StaysSilentOnManyPairsOfChannels) {
  EXPECT_TRUE(IsClean(Of({.input = "float[8,256,8192]",
                          .weight = "float[256,256,31]",
                          .groups = "1"}),
                      kRule));
}

// 8 signals with 32 frames of 1024 samples; each frame yields 513 complex
// numbers.
TEST(DirectConvolutionTest, AdvisesStftForASpectrogram) {
  Filter how{.input = "float[8,1,8960]",
             .weight = "float[1026,1,1024]",
             .stride = "[256]",
             .groups = "1"};
  const Report report = Of(how);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->fix_python.find("torch.stft("), std::string::npos);
  EXPECT_NEAR(finding->gain.expected_ms,
              5 * (1 - 2.5 * 1024 * 10 / (2.0 * 1026 * 1024)), 0.01);
  // nnAudio computes real and imaginary parts in two convolutions.
  how.weight = "float[513,1,1024]";
  EXPECT_FALSE(IsClean(Of(how), kRule));
  how.weight = "float[512,1,1024]";
  EXPECT_FALSE(IsClean(Of(how), kRule));
  how.weight = "float[256,1,1024]";
  EXPECT_TRUE(IsClean(Of(how), kRule));
  // The weight has a gradient: a learned filter bank.
  how.weight = "float[1026,1,1024]";
  how.wanted = "[True, True, False]";
  EXPECT_TRUE(IsClean(Of(how), kRule));
  // For short frames an FFT is no faster.
  how = {.input = "float[8,1,8960]",
         .weight = "float[66,1,64]",
         .stride = "[16]",
         .groups = "1"};
  EXPECT_TRUE(IsClean(Of(how), kRule));
}

// oneDNN has no fast backward pass for these convolutions. Only the measured
// time shows this; the number of operations does not.
TEST(DirectConvolutionTest, FindsSlowDepthwiseConvolutionsWithLongFilters) {
  Filter how{.input = "float[4,16,639]", .weight = "float[16,1,320]"};
  const Report report = Of(how);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // Three FFT convolutions of 2.3 million operations at 64 operations per ns.
  EXPECT_NEAR(finding->gain.expected_ms, 5 - 0.11, 0.02);
  EXPECT_NE(finding->assumption.find("far away"), std::string::npos);
  // Four times the work in the same time is not slow.
  how.input = "float[16,16,639]";
  EXPECT_TRUE(IsClean(Of(how), kRule));
  // Convolutions with short filters are slow for other reasons.
  how = {.input = "float[4,16,639]", .weight = "float[16,1,100]"};
  EXPECT_TRUE(IsClean(Of(how), kRule));
}

}  // namespace
}  // namespace stepscope::filters_test
