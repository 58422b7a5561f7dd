#include "rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::tensor_cores_test {
namespace {

constexpr const char* kSimt = "ampere_sgemm_128x128_tn";
constexpr const char* kTf32 =
    "cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4";
constexpr const char* kRelu =
    "void at::native::vectorized_elementwise_kernel<4, float>()";

// Three steps: a product of `product_us`, and other kernels of `rest_us`.
struct Shape {
  std::string kernel = kSimt;
  std::string inputs = "(float[4096,4096],float[4096,4096])";
  double product_us = 10'000;
  double rest_us = 1'000;
  double host_us = 10;
  std::string op = "aten::mm";
  std::string rest = kRelu;
  std::string launch = {};  // fields of the product's kernel
};
void Steps(ComputeText& text, const Shape& shape) {
  for (int i = 0; i < 3; ++i) {
    text.Op(shape.op, shape.inputs,
            {{shape.kernel, shape.product_us, shape.launch}}, shape.host_us);
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
  // 2 * 4096^3 operations at 60 % of 312 TFLOP/s take 0.73 of 10 ms. The
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

// Volta and Turing have no Tensor Cores for bfloat16, so bfloat16 is slow
// there.
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

// Libraries then compute in float32, under a name with both types.
TEST(TensorCoresIdleTest, AdvisesFloat16ForBfloat16OnDevicesWithoutIt) {
  const Shape shape = {
      .kernel =
          "void magma_sgemmEx_kernel<float, __nv_bfloat16, __nv_bfloat16, "
          "true, false, 6, 4, 6, 3, 4>()",
      .inputs = "(c10::BFloat16[4096,4096],c10::BFloat16[4096,4096])"};
  const Report turing = With(shape, "Tesla T4", 7, 5), ampere = With(shape);
  const Finding* finding = Find(turing, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("model.half()"), std::string::npos)
      << finding->fix_python;
  ASSERT_NE(Find(ampere, "tensor-cores-idle"), nullptr);
  EXPECT_EQ(Find(ampere, "tensor-cores-idle")->fix_python.find("half()"),
            std::string::npos);
}

// The kernels of With({}), with samples of counters: the Tensor Cores are
// active for `percent_in_product` of the first product's time, and for
// `percent_else` of the rest.
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
  // Just below the threshold, the kernel names decide.
  EXPECT_NE(Find(WithCounters(9, 0), "tensor-cores-idle"), nullptr);
}

// Examples: a compiled region, cuDNN's recurrent layer, an extension's op.
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

// An A100 with its number of multiprocessors.
constexpr const char* kA100 = "sm_count=108 NVIDIA A100-SXM4";

// What tensor-cores-idle gains from a product of 10 ms and unknown sizes; -1 if
// it is silent.
double WithoutSizes(const std::string& kernel, const std::string& grid,
                    const std::string& device = kA100,
                    const std::string& op = "aten::mm") {
  const Report report = With({.kernel = kernel,
                              .inputs = "",
                              .rest_us = 0,
                              .op = op,
                              .launch = "grid=" + grid},
                             device);
  const Finding* finding = Find(report, "tensor-cores-idle");
  return finding == nullptr ? -1 : finding->gain.expected_ms;
}

// 19.5 TFLOP/s become 312 TFLOP/s. Memory takes 0.06 ms.
TEST(TensorCoresIdleTest, TileAndGridStandInForSizes) {
  for (const char* kernel :
       {"ampere_sgemm_128x64_nt", "maxwell_sgemm_128x64_nt"}) {
    EXPECT_NEAR(WithoutSizes(kernel, "32,64,1"), 10 * (1 - 19.5 / 312), 0.01)
        << kernel;
  }
}

TEST(TensorCoresIdleTest, ASizedProductInBfloat16IsBoundedByMemory) {
  // A result of 2^30 numbers in 10 ms has an inner size of 54. In 16 bits, it
  // moves 2.15 GB at 80 % of 2039 GB/s.
  EXPECT_NEAR(WithoutSizes("ampere_sgemm_128x64_nt", "131072,1,1"), 10 - 1.32,
              0.01);
  // Eight times as many numbers would take longer than the kernel did.
  EXPECT_NEAR(WithoutSizes("ampere_sgemm_128x64_nt", "131072,8,1"), 5, 0.01);
}

TEST(TensorCoresIdleTest, SizesAProductOnlyIfABlockRunsOnEachMultiprocessor) {
  EXPECT_NEAR(WithoutSizes("ampere_sgemm_128x64_nt", "107,1,1"), 5, 0.01);
  EXPECT_NEAR(WithoutSizes("ampere_sgemm_128x64_nt", "27,2,2"),
              10 * (1 - 19.5 / 312), 0.01);
}

TEST(TensorCoresIdleTest, TakesHalfTheTimeWhereAProductCannotBeSized) {
  const char* grid = "32,64,1";
  // No tile; sizes that no tile has; Tensor Cores already; 16 bits already.
  for (const char* kernel :
       {"ampere_sgemm_nt", "ampere_sgemm_8x4_nt", "ampere_sgemm_1024x64_nt",
        kTf32, "ampere_fp16_sgemm_fp16_32x128_tn"}) {
    EXPECT_NEAR(WithoutSizes(kernel, grid), 5, 0.01) << kernel;
  }
  // A convolution's tile says nothing of its filter.
  EXPECT_NEAR(WithoutSizes("ampere_scudnn_128x64_relu_xregs_large_nn_v1", grid,
                           kA100, "aten::convolution"),
              5, 0.01);
  // The peaks or the number of multiprocessors are unknown.
  for (const char* device : {"sm_count=108 NVIDIA X900", "NVIDIA A100-SXM4"}) {
    EXPECT_NEAR(WithoutSizes("ampere_sgemm_128x64_nt", grid, device), 5, 0.01)
        << device;
  }
}

TEST(TensorCoresIdleTest, IsBoundedByMemoryTraffic) {
  // A thin product moves 2 * 4 bytes * 2^26 elements but computes little.
  const Report report =
      With({.inputs = "(float[1048576,64],float[64,64])", .rest_us = 0});
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  // 268 MB of 16-bit data at 80 % of 2039 GB/s take 0.16 ms; computing would
  // take 0.05 ms. (An A100 without a size in its name and with 80 GiB is the 80
  // GB model.)
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
  // float64, complex numbers, a depthwise convolution, a matrix times a vector,
  // and a name that shows no type.
  EXPECT_TRUE(IsClean(With({.kernel = "ampere_dgemm_64x64_nn",
                            .inputs = "(double[4096,4096],double[4096,4096])"}),
                      "tensor-cores-idle"));
  EXPECT_TRUE(IsClean(
      With({.kernel = "cutlass_80_tensorop_s1688cgemm_128x64_16x4_nn_align1",
            .inputs = "(c10::complex<float>[4096,4096],c10::complex<float>["
                      "4096,4096])"}),
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
  EXPECT_NE(WhySkipped(With({}, "", -1, -1), "tensor-cores-idle"), "");
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

// The weights of a generation that makes one token at a time are read once.
TEST(TensorCoresIdleTest, LeavesOutProductsThatMemoryLimits) {
  const auto by = [](const std::string& type) {
    return With({.kernel = "void gemv2T_kernel_val<int, int, " + type + ", " +
                           type + ", " + type + ", float, 128, 16, 4, 4>()",
                 .inputs = "",
                 .rest_us = 0});
  };
  EXPECT_TRUE(IsClean(by("__nv_bfloat16"), "tensor-cores-idle"));
  EXPECT_TRUE(IsClean(
      With({.kernel =
                "void at::native::conv_depthwise2d_forward_kernel_generic<"
                "c10::BFloat16, int>()",
            .inputs = "",
            .rest_us = 0,
            .op = "aten::_conv_depthwise2d"}),
      "tensor-cores-idle"));
  // 16 bits would halve what is read.
  EXPECT_FALSE(IsClean(by("float"), "tensor-cores-idle"));
}

TEST(Tf32OffTest, FiresOnPlainFloat32Products) {
  const Report report = With({});
  const Finding* finding = Find(report, "tf32-off");
  ASSERT_NE(finding, nullptr);
  // 2 * 4096^3 operations at 60 % of 156 TFLOP/s take 1.47 of 10 ms. TF32 is a
  // finding of its own beside 16 bits, which gain more, because it needs one
  // line and no change of types.
  EXPECT_NEAR(finding->gain.expected_ms, 10 - 1.47, 0.05);
  ASSERT_NE(Find(report, "tensor-cores-idle"), nullptr);
  EXPECT_GT(Find(report, "tensor-cores-idle")->gain.expected_ms,
            finding->gain.expected_ms);
}

TEST(Tf32OffTest, TileAndGridStandInForSizes) {
  const Report report = With({.kernel = "ampere_sgemm_128x64_nt",
                              .inputs = "",
                              .launch = "grid=32,64,1"},
                             kA100);
  const Finding* finding = Find(report, "tf32-off");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 10 * (1 - 19.5 / 156), 0.01);
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
  EXPECT_EQ(WhySkipped(cpu, "tf32-off"), "no GPU was recorded");
}

TEST(Tf32OffTest, TrustsTheSettings) {
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
