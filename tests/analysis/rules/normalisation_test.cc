#include "rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::normalisation_test {
namespace {

struct Run {
  std::string bias = "float[64]";
  std::string between = "", between_inputs = "";
  bool nested = false;  // in C++, an inner op has the same name
  std::string norm = "aten::batch_norm";
  std::string training = "True";
  std::string channels = "64";
  double bias_us = 100;
};
Report With(const Run& run) {
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    const std::string sequence = "sequence=" + std::to_string(10 * i);
    text.Begin();
    text.Op("aten::cudnn_convolution", "", {{"my_conv", 1'000}}, 100);
    text.Op("aten::add_", "", {{"elementwise_kernel", run.bias_us}}, 100);
    text.End("aten::conv2d",
             "(float[32,64,56,56],float[64,64,3,3]," + run.bias + ")", 0,
             sequence);
    if (!run.between.empty()) {
      text.Begin();
      if (run.nested) text.Op(run.between, run.between_inputs, {}, 2);
      text.End(run.between, run.between_inputs, 5);
    }
    text.Op(run.norm,
            "(float[32," + run.channels +
                ",56,56],float[64],float[64],float[64],float[64],Scalar=\"" +
                run.training + "\")",
            {{"bn_fw", 100}}, 100);
    text.Begin();
    text.Op("aten::sum", "", {{"reduce_kernel", run.bias_us}}, 100);
    text.End("ConvolutionBackward0", "", 0, "kind=backward " + sequence);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(BiasBeforeNormTest, FiresAndWinsTheBiasAndItsGradient) {
  const Report report = With({});
  const Finding* finding = Find(report, "bias-before-norm");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NEAR(finding->gain.expected_ms, 0.2, 0.02);
  EXPECT_NE(finding->fix_cpp.find("bias(false)"), std::string::npos);
}

TEST(BiasBeforeNormTest, IsMostlyANote) {
  const Report report = With({.bias_us = 3});
  ASSERT_NE(Find(report, "bias-before-norm"), nullptr);
  EXPECT_EQ(Find(report, "bias-before-norm")->severity, FindingSeverity::kNote);
}

TEST(BiasBeforeNormTest, StaysSilentWithoutABias) {
  EXPECT_TRUE(IsClean(With({.bias = ""}), "bias-before-norm"));
}

// The module first counts its batches: num_batches_tracked.add_(1).
TEST(BiasBeforeNormTest, LooksPastTheCountOfBatches) {
  EXPECT_FALSE(IsClean(
      With({.between = "aten::add_", .between_inputs = "(long int[],Scalar)"}),
      "bias-before-norm"));
}

TEST(BiasBeforeNormTest, StaysSilentWhereSomethingIsInBetween) {
  EXPECT_TRUE(IsClean(With({.between = "aten::relu"}), "bias-before-norm"));
  EXPECT_FALSE(IsClean(With({.between = "aten::view"}), "bias-before-norm"));
  EXPECT_TRUE(IsClean(With({.between = "aten::add_",
                            .between_inputs = "(float[32,64,56,56],Scalar)"}),
                      "bias-before-norm"));
}

TEST(BiasBeforeNormTest, StaysSilentOnOtherNormsFrozenOnesAndOtherChannels) {
  EXPECT_TRUE(IsClean(With({.norm = "aten::layer_norm"}), "bias-before-norm"));
  EXPECT_TRUE(IsClean(With({.training = "False"}), "bias-before-norm"));
  EXPECT_TRUE(IsClean(With({.channels = "32"}), "bias-before-norm"));
}

}  // namespace
}  // namespace stepscope::normalisation_test
