#include "rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

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
  // A data-centre device would save half, this one 63/64 of the products; then
  // the host limits.
  EXPECT_GT(Find(report, "fp64-compute")->gain.expected_ms, 0.8);
}

TEST(Fp64Test, StaysSilentBelowOnePercent) {
  EXPECT_TRUE(IsClean(OnGpu(98, 9'902), "fp64-compute"));
  EXPECT_FALSE(IsClean(OnGpu(102, 9'898), "fp64-compute"));
}

TEST(Fp64Test, TrustsInputTypesOverKernelName) {
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
  EXPECT_NE(WhySkipped(run(""), "fp64-compute"), "");
}

// A product and `solver` in double precision take `us` each, and `rest_us` are
// in single precision.
Report WithSolver(const std::string& solver, int64_t us, int64_t rest_us) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    text.Op("inputs=(double[64,64],double[64,64]) aten::mm", 2'000);
    text.Op("inputs=(double[64,64]) " + solver, us);
    text.Op("inputs=(float[64,64]) aten::relu", rest_us);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(Fp64Test, IsLowWhereMatricesAreFactorised) {
  for (const char* name :
       {"aten::linalg_inv_ex", "aten::_linalg_eigh", "aten::cholesky_solve",
        "aten::linalg_lu_factor_ex", "aten::_linalg_svd"}) {
    const Report report = WithSolver(name, 2'000, 6'000);
    const Finding* finding = Find(report, "fp64-compute");
    ASSERT_NE(finding, nullptr) << name;
    EXPECT_EQ(finding->severity, FindingSeverity::kLow) << name;
    EXPECT_EQ(finding->confidence, Confidence::kHint) << name;
    EXPECT_NE(finding->evidence.find("2.00 ms of that factorise"),
              std::string::npos)
        << finding->evidence;
  }
}

TEST(Fp64Test, IsLowOnAGpuWhereMatricesAreFactorised) {
  ComputeText text("NVIDIA A100-SXM4-80GB");
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::linalg_cholesky_ex", "", {{kDouble, 5'000}}, 300);
    text.Op("aten::relu", "", {{kFloat, 5'000}}, 10);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "fp64-compute");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
}

TEST(Fp64Test, NormsAndFewFactorisationsDoNotNeedDoubles) {
  EXPECT_GT(
      Find(WithSolver("aten::linalg_vector_norm", 2'000, 6'000), "fp64-compute")
          ->severity,
      FindingSeverity::kLow);
  // 1 % of the compute time.
  EXPECT_GT(Find(WithSolver("aten::linalg_inv_ex", 98, 7'902), "fp64-compute")
                ->severity,
            FindingSeverity::kLow);
  EXPECT_EQ(Find(WithSolver("aten::linalg_inv_ex", 102, 7'898), "fp64-compute")
                ->severity,
            FindingSeverity::kLow);
}

// oneDNN has no double-precision convolution. The replacement takes several
// times as long as a float32 convolution.
TEST(Fp64Test, ConvolutionsOfDoublesTakeASlowerPath) {
  const auto run = [](const std::string& name) {
    CpuText text;
    for (int step = 0; step < 4; ++step) {
      text.Op("inputs=(double[32,40,100],double[64,40,5]) " + name, 9'000);
      text.Op("inputs=(double[32,64]) aten::sort", 1'000);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report slow = run("aten::conv1d");
  const Finding* finding = Find(slow, "fp64-compute");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NEAR(finding->gain.expected_ms, 9 + 0.5, 0.5);
  EXPECT_NE(finding->evidence.find("9.00 ms of it are convolutions"),
            std::string::npos)
      << finding->evidence;
  const Report product = run("aten::bmm");
  EXPECT_NEAR(Find(product, "fp64-compute")->gain.expected_ms, 5, 0.01);
}

// oneDNN has no double-precision LSTM: each time step calls separate ops. In
// float32, one op replaces all of them.
TEST(Fp64Test, LstmsOfDoublesCallOpsForEachTimeStep) {
  const auto run = [](const std::string& layer) {
    CpuText text;
    for (int step = 0; step < 4; ++step) {
      text.Nested("inputs=(double[32,36,6]) " + layer, 9'000,
                  "inputs=(double[32,64],double[64,256]) aten::mm", 6'000);
      text.Op("inputs=(float[32,64]) aten::sort", 1'000);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report slow = run("aten::lstm");
  const Finding* finding = Find(slow, "fp64-compute");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 9, 0.1);
  EXPECT_NE(finding->evidence.find("LSTM layers take 9.00 ms"),
            std::string::npos)
      << finding->evidence;
  // PyTorch has no oneDNN GRU, so float32 also runs step by step.
  EXPECT_LT(Find(run("aten::gru"), "fp64-compute")->gain.expected_ms, 4.6);
}

// Three inference runs of a model with ten layers. Each layer casts its input
// and its weight; `behind` follows each run.
Report Casting(const std::string& from, const std::string& to,
               std::string_view behind = "", int layers = 10,
               bool autocast = true) {
  ComputeText text;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < layers; ++i) {
      text.Begin();
      text.Pass(1);
      if (autocast) text.Begin();
      text.Pass(1);
      text.Begin();
      text.Pass(1);
      text.Op("aten::copy_", "(" + to + "[64,64]," + from + "[64,64])",
              {{"direct_copy_kernel", 50}});
      text.End("aten::_to_copy", "(" + from + "[64,64])");
      if (autocast) text.End("aten::to", "(" + from + "[64,64])");
      text.End(autocast ? "aten::linear" : "aten::to", "(" + from + "[64,64])");
      text.Op("aten::mm", "(" + to + "[64,64]," + to + "[64,64])",
              {{"ampere_fp16_s16816gemm", 200}});
    }
    if (!behind.empty()) {
      text.Op(behind, "", {{"gemm", 100}}, 10, "kind=backward");
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(InferenceCastsTest, ConvertsTheModelOnce) {
  const Report report = Casting("float", "c10::Half");
  const Finding* finding = Find(report, "inference-casts");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 10 * 0.05, 0.03);
  EXPECT_NE(finding->fix_python.find("model.to(torch.float16)"),
            std::string::npos);
}

// A model that casts the weight itself: F.linear(x, weight.to(x.dtype)).
TEST(InferenceCastsTest, SeesCastsOfWeightsRightBeforeTheirProducts) {
  const auto with = [](const std::string& input) {
    ComputeText text;
    for (int step = 0; step < 3; ++step) {
      for (int i = 0; i < 10; ++i) {
        text.Begin();
        text.Pass(1);
        text.Begin();
        text.Pass(1);
        text.Op("aten::copy_", "(c10::Half[64,64],float[64,64])",
                {{"direct_copy_kernel", 50}});
        text.End("aten::_to_copy", "(float[64,64])");
        text.End("aten::to", "(float[64,64])");
        text.Op("aten::linear", "(c10::Half[" + input + "],c10::Half[64,64])",
                {{"ampere_fp16_s16816gemm", 200}});
      }
      text.EndStep();
    }
    return text.Analyzed();
  };
  EXPECT_FALSE(IsClean(with("8,32,64"), "inference-casts"));
  // It may be the input.
  EXPECT_TRUE(IsClean(with("64,64"), "inference-casts"));
}

TEST(InferenceCastsTest, IgnoresTraining) {
  EXPECT_TRUE(
      IsClean(Casting("float", "c10::Half", "MmBackward0"), "inference-casts"));
}

TEST(InferenceCastsTest, IgnoresOtherAndFewCasts) {
  EXPECT_TRUE(
      IsClean(Casting("float", "c10::Half", "", 10, false), "inference-casts"));
  EXPECT_TRUE(IsClean(Casting("float", "double"), "inference-casts"));
  EXPECT_TRUE(IsClean(Casting("float", "c10::Half", "", 7), "inference-casts"));
}

}  // namespace
}  // namespace stepscope::precision_test
