#include "support/compute_text.h"
#include "rule_testing.h"

namespace stepscope::precision_test {
namespace {

constexpr const char* kDouble = "ampere_dgemm_64x64_nn";
constexpr const char* kFloat =
    "void at::native::vectorized_elementwise_kernel<4, float>()";

Report OnGpu(double double_us, double rest_us, const std::string& inputs = "",
             const std::string& device = "NVIDIA A100-SXM4-80GB",
             double host_us = 300) {
  ComputeText text(device);
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::mm", inputs, {{kDouble, double_us}}, host_us);
    text.Op("aten::relu", "", {{kFloat, rest_us}}, 10);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(Fp64Test, FiresOnDoubleProducts) {
  const Report report = OnGpu(1'000, 9'000);
  const Finding* finding = Find(report, "fp64-compute");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NEAR(finding->gain.expected_ms, 0.5, 0.02);
}

TEST(Fp64Test, KnowsThatOtherDevicesHaveFewerUnits) {
  const Report report = OnGpu(1'000, 9'000, "", "NVIDIA GeForce RTX 4090");
  ASSERT_NE(Find(report, "fp64-compute"), nullptr);
  // Half on a data-centre device, 63 of 64 parts here; the host then limits.
  EXPECT_GT(Find(report, "fp64-compute")->gain.expected_ms, 0.8);
}

TEST(Fp64Test, StaysSilentBelowOnePercent) {
  EXPECT_TRUE(IsClean(OnGpu(98, 9'902), "fp64-compute"));
  EXPECT_FALSE(IsClean(OnGpu(102, 9'898), "fp64-compute"));
}

TEST(Fp64Test, BelievesTheInputsBeforeTheName) {
  EXPECT_TRUE(IsClean(OnGpu(1'000, 9'000, "(float[64,64],float[64,64])"),
                      "fp64-compute"));
}

TEST(Fp64Test, IsAHintWhereAllIsDouble) {
  const Report report = OnGpu(9'500, 500);
  ASSERT_NE(Find(report, "fp64-compute"), nullptr);
  EXPECT_EQ(Find(report, "fp64-compute")->confidence, Confidence::kHint);
}

TEST(Fp64Test, IsABoundOnACpuAndNeedsTypes) {
  const auto run = [](const std::string& inputs) {
    std::string text;
    for (int i = 0; i < 3; ++i) {
      const int64_t at = i * 10'000'000;
      text += "op " + std::to_string(at) + ".." +
              std::to_string(at + 2'000'000) + " thread=0 " + inputs +
              " aten::mm\nop " + std::to_string(at + 2'000'000) + ".." +
              std::to_string(at + 10'000'000) + " thread=0 aten::relu\nstep " +
              std::to_string(at) + ".." + std::to_string(at + 10'000'000) +
              " thread=0 number=" + std::to_string(i) + "\n";
    }
    return Analyze(TraceFromText(text));
  };
  const Report report = run("inputs=(double[64,64],double[64,64])");
  const Finding* finding = Find(report, "fp64-compute");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.01);
  EXPECT_TRUE(
      IsClean(run("inputs=(float[64,64],float[64,64])"), "fp64-compute"));
  EXPECT_NE(WhyBlind(run(""), "fp64-compute"), "");
}

}  // namespace
}  // namespace stepscope::precision_test
