// Names that Inductor 2.1 to 2.11 generates (torch/_inductor).
// compiled_names_test.py checks that Inductor's own functions still generate
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/compiled_kernel.h>
#include <stepscope/kernel_class.h>

#include <string>
#include <string_view>
#include <vector>

namespace stepscope::compiled_kernel_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string_view> Ops(std::string_view name) {
  const auto kernel = ParseCompiledKernel(name);
  EXPECT_TRUE(kernel.has_value()) << name;
  return kernel.has_value() ? kernel->ops : std::vector<std::string_view>();
}

TEST(CompiledKernelTest, OperatorsOfOneWord) {
  EXPECT_THAT(Ops("triton_poi_fused_add_relu_0"), ElementsAre("add", "relu"));
  EXPECT_THAT(Ops("triton_red_fused_add_mean_mul_pow_rsqrt_12"),
              ElementsAre("add", "mean", "mul", "pow", "rsqrt"));
  EXPECT_THAT(Ops("triton_tem_fused_mm_7"), ElementsAre("mm"));
}

TEST(CompiledKernelTest, OperatorsThatContainTheSeparator) {
  EXPECT_THAT(Ops("triton_per_fused_native_batch_norm_relu_3"),
              ElementsAre("native_batch_norm", "relu"));
  EXPECT_THAT(
      Ops("triton_poi_fused_add_max_pool2d_with_indices_native_batch_norm_2"),
      ElementsAre("add", "max_pool2d_with_indices", "native_batch_norm"));
  EXPECT_THAT(Ops("triton_red_fused_native_layer_norm_native_layer_norm_"
                  "backward_5"),
              ElementsAre("native_layer_norm", "native_layer_norm_backward"));
  EXPECT_THAT(Ops("triton_poi_fused_convolution_1"),
              ElementsAre("convolution"));
}

// If an operator's name starts with "_", two "_" precede the rest of it.
TEST(CompiledKernelTest, OperatorsThatBeginWithTheSeparator) {
  EXPECT_THAT(Ops("triton_per_fused__softmax_0"), ElementsAre("_softmax"));
  EXPECT_THAT(
      Ops("triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1"),
      ElementsAre("_unsafe_view", "add", "mean", "mul", "pow", "rsqrt"));
  EXPECT_THAT(Ops("triton_per_fused__log_softmax__to_copy_nll_loss_forward_9"),
              ElementsAre("_log_softmax", "_to_copy", "nll_loss_forward"));
}

TEST(CompiledKernelTest, InPlaceOperatorsEndWithTheSeparator) {
  EXPECT_THAT(Ops("triton_poi_fused_add_copy__4"), ElementsAre("add", "copy_"));
  EXPECT_THAT(Ops("triton_poi_fused_copy__mul_4"), ElementsAre("copy_", "mul"));
}

// "index" and "select" are operators as well and are in sorted order.
TEST(CompiledKernelTest, TheLongerOperatorIsTaken) {
  EXPECT_THAT(Ops("triton_poi_fused_index_select_0"),
              ElementsAre("index_select"));
}

// In sorted order, "fancy" would precede "zeta", so these are not separate
// operators.
TEST(CompiledKernelTest, OperatorsOfOtherLibrariesStayInOnePiece) {
  EXPECT_THAT(Ops("triton_poi_fused_mul_zeta_fancy_gate_0"),
              ElementsAre("mul", "zeta_fancy_gate"));
}

TEST(CompiledKernelTest, NumbersOfGraphNodesAreLeftOut) {
  // With descriptive_names = "inductor_node", names are neither sorted nor
  // unique.
  EXPECT_THAT(Ops("triton_poi_fused_relu_add_1_mul_tensor_2_add_3_0"),
              ElementsAre("relu", "add", "mul", "tensor"));
  EXPECT_THAT(Ops("triton_poi_fused_native_batch_norm_2_relu_7_11"),
              ElementsAre("native_batch_norm", "relu"));
}

TEST(CompiledKernelTest, KindsAndLanguages) {
  const auto kind = [](std::string_view name) {
    const auto kernel = ParseCompiledKernel(name);
    return kernel.has_value() ? std::string(kernel->kind) : "none";
  };
  EXPECT_EQ(kind("triton_poi_fused_add_0"), "pointwise");
  EXPECT_EQ(kind("triton_red_fused_sum_0"), "reduction");
  EXPECT_EQ(kind("triton_per_fused_sum_0"), "persistent reduction");
  EXPECT_EQ(kind("triton_tem_fused_mm_0"), "template");
  EXPECT_EQ(kind("triton_for_fused_add_0"), "foreach");
  EXPECT_EQ(kind("triton_spl_fused_cumsum_0"), "split scan");
  EXPECT_EQ(kind("triton_unk_fused_add_mul_0"), "");
  EXPECT_EQ(kind("cpp_fused_add_0"), "C++");
  EXPECT_EQ(kind("graph_3_cpp_fused_add_0"), "C++");
  EXPECT_EQ(kind("cutlass_fused_addmm_relu_0123abcd"), "CUTLASS");
  EXPECT_EQ(kind("nv_universal_gemm_fused_mm_0123abcd"), "CUTLASS");
  // AOTInductor puts the model's name first.
  EXPECT_EQ(kind("resnet_triton_poi_fused_add_0"), "pointwise");
}

TEST(CompiledKernelTest, WhatOtherToolsAppendIsLeftOut) {
  EXPECT_THAT(Ops("triton_poi_fused_add_relu_0.kd"),
              ElementsAre("add", "relu"));
  // Triton 2 appends how it specialised each argument.
  EXPECT_THAT(Ops("triton_poi_fused_add_relu_0_0d1d2de3c"),
              ElementsAre("add", "relu"));
  EXPECT_THAT(Ops("graph_0_cpp_fused_add_relu_0"), ElementsAre("add", "relu"));
}

TEST(CompiledKernelTest, AKernelMayNameNoOperator) {
  EXPECT_THAT(Ops("triton_poi_fused_0"), IsEmpty());
  EXPECT_EQ(FusedOpsInWords("triton_poi_fused_0"), "pointwise (compiled)");
  EXPECT_EQ(FusedOpsInWords("triton_unk_fused_0"), "kernel (compiled)");
}

TEST(CompiledKernelTest, OtherNamesAreNotCompiledKernels) {
  for (const char* name :
       {"", "triton_", "triton_poi_fused", "triton_poi_fused_",
        "triton_poi_fused_add", "triton_mm_17", "triton__0d1d2d",
        "fused_dropout_kernel", "xcpp_fused_add_0", "multi_tensor_apply",
        "void at::native::vectorized_elementwise_kernel<4>(int)",
        "void triton_poi_fused_add_0(float*)", "cutlass_fused_mm_12",
        "cutlass_0123abcd", "Torch-Compiled Region: 0/0"}) {
    EXPECT_FALSE(ParseCompiledKernel(name).has_value()) << name;
    EXPECT_EQ(FusedOpsInWords(name), "") << name;
  }
}

TEST(CompiledKernelTest, Words) {
  EXPECT_EQ(FusedOpsInWords("triton_poi_fused_add_relu_0"),
            "add + relu (compiled)");
  EXPECT_EQ(FusedOpsInWords("triton_poi_fused_abs_add_div_exp_mul_pow_relu_0"),
            "abs + add + div + exp + mul + pow + relu (compiled)");
  EXPECT_EQ(
      FusedOpsInWords("triton_poi_fused_abs_add_div_exp_mul_pow_relu_sub_0"),
      "abs + add + div + exp + mul + pow + 2 more (compiled)");
}

// A trace may come from anyone, so splitting a name must take linear time.
TEST(CompiledKernelTest, LongNamesAreCut) {
  std::string name = "triton_poi_fused";
  for (int i = 0; i < 20'000; ++i) name += "_add";
  name += "_0";
  EXPECT_THAT(Ops(name), ElementsAre("add"));
  std::string empty = "triton_poi_fused" + std::string(50'000, '_') + "0";
  EXPECT_THAT(Ops(empty), IsEmpty());
}

TEST(CompiledKernelTest, TheirClassIsCompiled) {
  EXPECT_TRUE(TraitsOfKernel("triton_poi_fused_add_relu_0").compiled);
  EXPECT_TRUE(TraitsOfKernel("cutlass_fused_addmm_relu_0123abcd").compiled);
  EXPECT_FALSE(TraitsOfKernel("cutlass_80_simt_sgemm_128x32").compiled);
}

}  // namespace
}  // namespace stepscope::compiled_kernel_test
