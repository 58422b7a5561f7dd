#include "rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::tensor_cores_test {
namespace {

constexpr const char* kSimt = "ampere_sgemm_128x128_tn";
constexpr const char* kTf32 =
    "cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4";
constexpr const char* kRelu =
    "void at::native::vectorized_elementwise_kernel<4, float>()";

// Three steps: one product of `product_us`, other kernels of `rest_us`.
struct Shape {
  std::string kernel = kSimt;
  std::string inputs = "(float[4096,4096],float[4096,4096])";
  double product_us = 10'000;
  double rest_us = 1'000;
  double host_us = 10;
  std::string op = "aten::mm";
  std::string rest = kRelu;
};
void Steps(ComputeText& text, const Shape& shape) {
  for (int i = 0; i < 3; ++i) {
    text.Op(shape.op, shape.inputs, {{shape.kernel, shape.product_us}},
            shape.host_us);
    if (shape.rest_us > 0) {
      text.Op("aten::relu", "", {{shape.rest, shape.rest_us}});
    }
    text.EndStep();
  }
}
Report With(const Shape& shape, const std::string& device = "NVIDIA A100-SXM4",
            int major = 8, int minor = 0) {
  ComputeText text(device, major, minor);
  Steps(text, shape);
  return text.Analyzed();
}

TEST(TensorCoresIdleTest, FiresOnFloat32ProductsAndNamesThePeak) {
  const Report report = With({});
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  // 2 * 4096^3 operations at 60 % of 312 TFLOP/s take 0.73 ms of 10 ms; the
  // elementwise kernel becomes twice as fast.
  EXPECT_NEAR(finding->gain.expected_ms, 9.27 + 0.5, 0.15);
  EXPECT_NE(finding->assumption.find("A100"), std::string::npos);
  EXPECT_NE(finding->fix_python.find("autocast"), std::string::npos);
}

TEST(TensorCoresIdleTest, TellsWhatProductsAndOtherKernelsSave) {
  const std::string both = Find(With({}), "tensor-cores-idle")->evidence;
  EXPECT_NE(both.find("convolutions save 9.27 ms, and elementwise, "),
            std::string::npos)
      << both;
  EXPECT_NE(both.find("half the bytes, 0.50 ms of 1.00 ms."), std::string::npos)
      << both;
  const std::string products =
      Find(With({.rest_us = 0}), "tensor-cores-idle")->evidence;
  EXPECT_EQ(products.find("convolutions save"), std::string::npos) << products;
}

// Volta and Turing compute bfloat16 without Tensor Cores, so slowly.
TEST(TensorCoresIdleTest, AdvisesFloat16WhereBfloat16HasNoTensorCores) {
  const Report report = With({}, "Tesla V100-SXM2-32GB", 7, 0);
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  for (const std::string& fix : {finding->fix_cpp, finding->fix_python}) {
    EXPECT_NE(fix.find("GradScaler"), std::string::npos) << fix;
    EXPECT_EQ(fix.find("dtype=torch.bfloat16"), std::string::npos) << fix;
    EXPECT_EQ(fix.find("kBFloat16"), std::string::npos) << fix;
  }
  EXPECT_NE(finding->fix_python.find("float16"), std::string::npos);
}

// The kernels of With({}), and samples that fill the first product: the Tensor
// Cores are active so many percent of the time then, and of the rest never.
Report WithCounters(double percent_in_product, double percent_else) {
  ComputeText text("NVIDIA A100-SXM4", 8, 0);
  Steps(text, {});
  std::string rows = text.text();
  const Trace plain = TraceFromText(rows);
  const auto share = [](double percent) {
    return std::to_string(percent / 100);
  };
  for (const Kernel& kernel : plain.kernels()) {
    const bool is_product = plain.name(kernel.name) == kSimt;
    constexpr int64_t kEveryNs = 1'000'000;
    for (int64_t at = kernel.begin_ns + kEveryNs; at <= kernel.end_ns;
         at += kEveryNs) {
      rows += "device_sample " + std::to_string(at) +
              " device=0 counted_ns=1000000 tensor_active_frac=" +
              share(is_product ? percent_in_product : percent_else) + "\n";
    }
  }
  return Analyze(TraceFromText(rows));
}

TEST(TensorCoresIdleTest, CountersSayHowBusyTheyWere) {
  const Report report = WithCounters(0.4, 60);
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("while these kernels ran, the Tensor Cores "
                                   "were active 0.4 % of the time"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(
      Find(With({}), "tensor-cores-idle")->evidence.find("Hardware counters"),
      std::string::npos);
}

TEST(TensorCoresIdleTest, CountersOverruleTheNames) {
  EXPECT_EQ(Find(WithCounters(40, 0), "tensor-cores-idle"), nullptr);
  // Just below the threshold the names count.
  EXPECT_NE(Find(WithCounters(9, 0), "tensor-cores-idle"), nullptr);
}

// A compiled region, a recurrent layer of cuDNN, an op of an extension.
TEST(TensorCoresIdleTest, SeesProductsUnderOpsItDoesNotKnow) {
  for (const char* op :
       {"Torch-Compiled Region: 0/0", "aten::_cudnn_rnn", "mylib::attend"}) {
    EXPECT_NE(Find(With({.inputs = "", .op = op}), "tensor-cores-idle"),
              nullptr)
        << op;
  }
}

TEST(TensorCoresIdleTest, TakesAFactorOfTwoWithoutShapes) {
  const Report report = With({.inputs = ""});
  ASSERT_NE(Find(report, "tensor-cores-idle"), nullptr);
  EXPECT_NEAR(Find(report, "tensor-cores-idle")->gain.expected_ms, 5.5, 0.1);
}

TEST(TensorCoresIdleTest, IsBoundedByMemoryTraffic) {
  // A thin product moves 2 * 4 bytes * 2^26 elements for few operations.
  const Report report =
      With({.inputs = "(float[1048576,64],float[64,64])", .rest_us = 0});
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  // 268 MB in 16 bits at 80 % of 1555 GB/s (a name without a size and 80 GiB
  // is the 80 GB part, 2039 GB/s): 0.16 ms; compute would take 0.05 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 10 - 0.165, 0.02);
}

TEST(TensorCoresIdleTest, StaysSilentBelowATenthOfTheComputeTime) {
  EXPECT_TRUE(IsClean(With({.product_us = 990, .rest_us = 9'010}),
                      "tensor-cores-idle"));
  EXPECT_FALSE(IsClean(With({.product_us = 1'010, .rest_us = 8'990}),
                       "tensor-cores-idle"));
}

TEST(TensorCoresIdleTest, KnowsTheKernelsOfHopper) {
  EXPECT_TRUE(IsClean(
      With({.kernel = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
            .inputs = "(c10::BFloat16[4096,4096],c10::BFloat16[4096,4096])"},
           "NVIDIA H200", 9, 0),
      "tensor-cores-idle"));
}

TEST(TensorCoresIdleTest, IsANoteWhereTheHostIsTheLimit) {
  const Report report =
      With({.product_us = 900, .rest_us = 100, .host_us = 5'000});
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
  EXPECT_NE(finding->evidence.find("waits for the host"), std::string::npos)
      << finding->evidence;
}

TEST(TensorCoresIdleTest, LeavesOutWhatTensorCoresCannotDo) {
  // float64, depthwise, a matrix times a vector, a name that does not tell.
  EXPECT_TRUE(IsClean(With({.kernel = "ampere_dgemm_64x64_nn",
                            .inputs = "(double[4096,4096],double[4096,4096])"}),
                      "tensor-cores-idle"));
  EXPECT_TRUE(IsClean(
      With({.kernel = "void conv_depthwise2d_forward_kernel<3, float, int>()",
            .inputs = "(float[32,64,56,56],float[64,1,3,3])",
            .op = "aten::convolution"}),
      "tensor-cores-idle"));
  EXPECT_TRUE(IsClean(With({.inputs = "(float[1,4096],float[4096,4096])"}),
                      "tensor-cores-idle"));
  EXPECT_TRUE(
      IsClean(With({.kernel = "my_product_kernel"}), "tensor-cores-idle"));
}

TEST(TensorCoresIdleTest, StaysSilentOnDevicesWithoutThem) {
  EXPECT_TRUE(
      IsClean(With({}, "Tesla P100-PCIE-16GB", 6, 0), "tensor-cores-idle"));
}

TEST(TensorCoresIdleTest, CannotLookAtADeviceItDoesNotKnow) {
  EXPECT_NE(WhyBlind(With({}, "", -1, -1), "tensor-cores-idle"), "");
}

TEST(TensorCoresIdleTest, OffersSixteenBitsForTf32) {
  const Report report = With({.kernel = kTf32});
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("TF32"), std::string::npos);
  EXPECT_NEAR(finding->gain.expected_ms, 5 + 0.5, 0.1);
}

TEST(TensorCoresIdleTest, BlamesShapesWhere16BitKernelsDoNotUseThem) {
  const Report report =
      With({.kernel = "ampere_fp16_sgemm_fp16_32x128_tn",
            .inputs = "(c10::Half[4096,4096],c10::Half[4096,4096])"});
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("multiples of 8"), std::string::npos);
}

TEST(Tf32OffTest, FiresOnPlainFloat32Products) {
  const Report report = With({});
  const Finding* finding = Find(report, "tf32-off");
  ASSERT_NE(finding, nullptr);
  // 2 * 4096^3 operations at 60 % of 156 TFLOP/s take 1.47 ms of 10 ms. It has
  // its own gain beside 16 bits, which gain more: one line, and no types to
  // change.
  EXPECT_NEAR(finding->gain.expected_ms, 10 - 1.47, 0.05);
  ASSERT_NE(Find(report, "tensor-cores-idle"), nullptr);
  EXPECT_GT(Find(report, "tensor-cores-idle")->gain.expected_ms,
            finding->gain.expected_ms);
}

TEST(Tf32OffTest, SaysWhatItAssumesWithoutThePeaks) {
  const Report report = With({.inputs = ""}, "NVIDIA X900", 8, 0);
  const Finding* finding = Find(report, "tf32-off");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->assumption.find("twice as fast"), std::string::npos);
  EXPECT_FALSE(finding->assumption.ends_with("; ")) << finding->assumption;
}

TEST(Tf32OffTest, StaysSilentBeforeAmpereAndWithoutAGpu) {
  EXPECT_TRUE(IsClean(With({}, "Tesla V100-SXM2-32GB", 7, 0), "tf32-off"));
  const Report cpu = Analyze(TraceFromText(
      "step 0..1000000 thread=0 number=0\n"
      "op 0..900000 thread=0 inputs=(float[64,64],float[64,64]) aten::mm\n"));
  EXPECT_EQ(WhyBlind(cpu, "tf32-off"), "no GPU was recorded");
}

TEST(Tf32OffTest, BelievesTheSettings) {
  ComputeText on;
  on.Line("settings 1 step=0 tf32_cublas=1 matmul_precision=high");
  Steps(on, {});
  EXPECT_TRUE(IsClean(on.Analyzed(), "tf32-off"));
}

TEST(Tf32OffTest, LeavesConvolutionsAlone) {
  EXPECT_TRUE(
      IsClean(With({.kernel = "ampere_scudnn_128x64_relu_xregs_large_nn_v1",
                    .inputs = "(float[32,64,56,56],float[64,64,3,3])",
                    .op = "aten::convolution"}),
              "tf32-off"));
}

}  // namespace
}  // namespace stepscope::tensor_cores_test
