#include "rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::fusion_test {
namespace {

constexpr const char* kAdd =
    "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float> "
    ">()";

struct Run {
  int length = 4;
  std::string inputs = "";
  std::string fields = "grid=1000,1,1 block=128,1,1";
  std::string name = kAdd;
  int interrupt = -1;  // index of a kernel followed by a product
  double us = 100;
};
Report With(const Run& run) {
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < run.length; ++k) {
      text.Op("aten::add", run.inputs, {{run.name, run.us, run.fields}}, 60);
      if (k == run.interrupt) {
        text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 100}});
      }
    }
    text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 600}}, 60);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnfusedPointwiseTest, FiresOnAChainAndSavesAtMostTwoThirds) {
  const Report report = With({});
  const Finding* finding = Find(report, "unfused-pointwise");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 0.66 * 0.4, 0.02);
  EXPECT_EQ(finding->where, "add > add > add > add");
}

TEST(UnfusedPointwiseTest, CountsWhatAFusedKernelMustMove) {
  // Four additions of two tensors of 42 M floats: a fused kernel reads 5
  // tensors and writes 1. 1007 MB at 80 % of 2039 GB/s take 0.617 of 1.24 ms.
  const Report report =
      With({.inputs = "(float[4096,10240],float[4096,10240])", .us = 310});
  const Finding* finding = Find(report, "unfused-pointwise");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.24 - 0.617, 0.02);
  EXPECT_NE(finding->assumption.find("A100"), std::string::npos);
}

// A device that a tenth of its data sheet's rate is left for: 168 MB in 1 ms.
TEST(UnfusedPointwiseTest, ExpectsNoMoreThanTheRateThatItsKernelsReach) {
  const Report report =
      With({.inputs = "(float[1024,10240],float[1024,10240])", .us = 750});
  const Finding* finding = Find(report, "unfused-pointwise");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 3.0 * 0.5, 0.02);
}

// Of the first chain only an eighth is used, so that late-selection shortens
// it. The second chain is left for fusing.
TEST(UnfusedPointwiseTest, LeavesAChainToTheChangeThatShortensIt) {
  ComputeText text;
  const std::string grid = "grid=1000,1,1 block=128,1,1";
  for (int i = 0; i < 4; ++i) {
    for (const char* op : {"aten::div", "aten::sub", "aten::pow"}) {
      text.Op(op, "(float[4096,4096])", {{kAdd, 1'000, grid}}, 20);
    }
    text.Op("aten::slice",
            "(float[4096,4096],Scalar=\"0\",Scalar=\"0\",Scalar=\"512\","
            "Scalar=\"1\")",
            {}, 5);
    text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 2'000}}, 20);
    for (int k = 0; k < 3; ++k) {
      text.Op("aten::add", "(float[2048,4096],float[2048,4096])",
              {{kAdd, 500, grid}}, 20);
    }
    text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 2'000}}, 20);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings.front().id, "late-selection");
  const Finding* finding = Find(report, "unfused-pointwise");
  ASSERT_NE(finding, nullptr);
  // Fusing the second chain leaves five of nine tensors moved in 1.5 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 1.5 * 4 / 9, 0.01);
  EXPECT_NE(finding->evidence.find("after the change of late-selection"),
            std::string::npos)
      << finding->evidence;
}

TEST(UnfusedPointwiseTest, NeedsMoreThanTwoInARow) {
  EXPECT_TRUE(IsClean(With({.length = 2}), "unfused-pointwise"));
  EXPECT_FALSE(IsClean(With({.length = 3}), "unfused-pointwise"));
}

// A gated activation. The sizes show that a fused kernel saves two of the five
// tensors moved.
TEST(UnfusedPointwiseTest, AcceptsTwoIfSizesAreKnown) {
  const Report report = With({.length = 2,
                              .inputs = "(float[4096,10240],float[4096,10240])",
                              .us = 310});
  EXPECT_NE(Find(report, "unfused-pointwise"), nullptr);
}

// Root mean square normalisation: a reduction over the rows, then ops on the
// rows.
TEST(UnfusedPointwiseTest, AReductionOverRowsIsPartOfTheChain) {
  const std::string reduce =
      "void at::native::reduce_kernel<512, 1, MeanOps<float> >()";
  const auto norm = [&](const std::string& rows) {
    ComputeText text;
    for (int i = 0; i < 3; ++i) {
      const std::string whole = "(float[8192,2048])";
      text.Op("aten::pow", whole, {{kAdd, 100}}, 60);
      text.Op("aten::mean", "(float[8192,2048],ScalarList,Scalar,-)",
              {{reduce, 60}}, 60);
      text.Op("aten::rsqrt", "(float[" + rows + "])", {{kAdd, 3}}, 60);
      text.Op("aten::mul", "(float[8192,2048],float[8192,1])", {{kAdd, 150}},
              60);
      text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 600}}, 60);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report report = norm("8192,1");
  const Finding* finding = Find(report, "unfused-pointwise");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "pow > mean > rsqrt > mul");
  // The other operand is not a result of the reduction.
  EXPECT_NE(Find(norm("8192,512"), "unfused-pointwise"), nullptr);
  EXPECT_EQ(Find(norm("8192,512"), "unfused-pointwise")->where, "pow > mean");
}

// A rotary embedding: the halves of a tensor are joined again with torch.cat,
// of whose tensors torch.profiler records the sizes and no types.
TEST(UnfusedPointwiseTest, JoiningTheHalvesOfATensorIsPartOfTheChain) {
  const std::string cat =
      "void at::native::CatArrayBatchedCopy<OpaqueType<4u>, 512, 64, 64>()";
  const std::string whole = "(float[64,128,1024],float[128,1024])";
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::mul", whole, {{kAdd, 40}}, 60);
    text.Op("aten::neg", "(float[64,128,512])", {{kAdd, 20}}, 60);
    text.Op("aten::cat", "(TensorList(-[64,128,512],-[64,128,512]),Scalar'-1')",
            {{cat, 40}}, 60);
    text.Op("aten::mul", whole, {{kAdd, 40}}, 60);
    text.Op("aten::add", "(float[64,128,1024],float[64,128,1024])",
            {{kAdd, 60}}, 60);
    text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 600}}, 60);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "unfused-pointwise");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("5 kernels in 1 chain"), std::string::npos);
  // One tensor of 8.4 M floats is read and one written: 67 MB.
  EXPECT_NEAR(finding->gain.expected_ms, 0.200 - 0.051, 0.015);
}

TEST(UnfusedPointwiseTest, AProductInBetweenEndsAChain) {
  EXPECT_TRUE(IsClean(With({.interrupt = 1}), "unfused-pointwise"));
}

TEST(UnfusedPointwiseTest, StaysSilentOnReluAlone) {
  EXPECT_TRUE(IsClean(With({.length = 1}), "unfused-pointwise"));
}

TEST(UnfusedPointwiseTest, LeavesCompiledKernelsAlone) {
  EXPECT_TRUE(IsClean(With({.name = "triton_poi_fused_add_mul_0"}),
                      "unfused-pointwise"));
}

TEST(UnfusedPointwiseTest, StaysSilentWhereSizesAreNotKnown) {
  EXPECT_TRUE(IsClean(With({.fields = ""}), "unfused-pointwise"));
}

TEST(UnfusedPointwiseTest, StaysSilentBelowTheGate) {
  // Four kernels of 30 us save 79 us, but a finding needs 0.1 ms.
  EXPECT_TRUE(IsClean(With({.us = 30}), "unfused-pointwise"));
  EXPECT_FALSE(IsClean(With({.us = 45}), "unfused-pointwise"));
}

}  // namespace
}  // namespace stepscope::fusion_test
