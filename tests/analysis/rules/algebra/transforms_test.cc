#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::transforms_test {
namespace {

constexpr const char* kRule = "slow-fft-length";

// Steps of 10 ms with a transform of 4 ms, which torch.fft.rfft calls, and
// which follows an op of 1 ms.
Report Of(const std::string& transform,
          const std::string& before = "aten::constant_pad_nd") {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    text.Nested("aten::fft_rfft", 5'100, before, 1'000, transform, 4'000);
    text.Op("aten::sort", 4'900);
    text.EndStep();
  }
  return text.Analyzed();
}
std::string Real(int64_t length) {
  return "inputs=(float[12," + std::to_string(length) +
         "],ScalarList=\"[1]\",Scalar=\"0\",Scalar=\"True\") aten::_fft_r2c";
}

TEST(SlowFftLengthTest, AdvisesAFastLengthWhereZerosAreAppended) {
  const Report report = Of(Real(20'095));  // 5 x 4019
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 4 * 15.0 / 16, 0.01);
  EXPECT_NE(finding->evidence.find("20095 (5 x 4019)"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("n=20250"), std::string::npos)
      << finding->fix_python;
}

TEST(SlowFftLengthTest, IsAHintWhereTheDataHaveThatLength) {
  const Finding finding = *Find(Of(Real(20'095), "aten::detach"), kRule);
  EXPECT_EQ(finding.confidence, Confidence::kHint);
  EXPECT_LE(finding.severity, FindingSeverity::kMedium);
}

TEST(SlowFftLengthTest, AllowsSmallFactorsAndShortTransforms) {
  EXPECT_TRUE(IsClean(Of(Real(1'024 * 13)), kRule));
  EXPECT_FALSE(IsClean(Of(Real(1'024 * 17)), kRule));
  EXPECT_TRUE(IsClean(Of(Real(127)), kRule));
  EXPECT_FALSE(IsClean(Of(Real(131)), kRule));
}

// The sizes of its argument are those of half a spectrum.
TEST(SlowFftLengthTest, KnowsTheLengthOfARealResult) {
  const auto inverse = [](int64_t length) {
    return Of(
        "inputs=(c10::complex<float>[12,10048],ScalarList=\"[-1]\","
        "Scalar=\"2\",Scalar=\"" +
        std::to_string(length) + "\") aten::_fft_c2r");
  };
  EXPECT_FALSE(IsClean(inverse(20'095), kRule));
  EXPECT_TRUE(IsClean(inverse(20'160), kRule));
}

// cuFFT has kernels for prime factors up to 127.
TEST(SlowFftLengthTest, AllowsLargerFactorsOnAGpu) {
  const auto on_gpu = [](int64_t length) {
    ComputeText text;
    for (int i = 0; i < 4; ++i) {
      text.Op("aten::_fft_c2c",
              "(c10::complex<float>[12," + std::to_string(length) +
                  "],ScalarList=\"[1]\",Scalar=\"0\",Scalar=\"True\")",
              {{"void vector_fft<8192u>", 500}});
      text.Op("aten::mm", "", {{"sgemm", 500}});
      text.EndStep();
    }
    return text.Analyzed();
  };
  EXPECT_TRUE(IsClean(on_gpu(127 * 64), kRule));
  EXPECT_FALSE(IsClean(on_gpu(131 * 64), kRule));
}

}  // namespace
}  // namespace stepscope::transforms_test
