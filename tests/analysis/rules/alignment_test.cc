#include "rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::alignment_test {
namespace {

constexpr const char* kWide = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_tn";
constexpr const char* kNarrow =
    "cutlass_75_tensorop_f16_s1688gemm_f16_256x128_tn_align1";

std::string Product(int64_t m, int64_t k, int64_t n,
                    const std::string& type = "c10::Half") {
  const auto tensor = [&](int64_t rows, int64_t columns) {
    return type + "[" + std::to_string(rows) + "," + std::to_string(columns) +
           "]{" + std::to_string(columns) + ",1}";
  };
  return "(" + tensor(m, k) + "," + tensor(k, n) + ")";
}

struct Line {
  std::string inputs;
  double us;
  std::string kernel = kWide;
};
Report With(const std::vector<Line>& lines) {
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    for (const Line& line : lines) {
      text.Op("aten::mm", line.inputs, {{line.kernel, line.us}});
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(MisalignedDimsTest, FiresOnASlowVocabulary) {
  // 0.82 TFLOP take 5 ms here; the neighbouring aligned product needs 2 ms for
  // as many.
  const Report report = With({{Product(4096, 2048, 50257), 8'000},
                              {Product(4096, 2048, 50304), 4'000}});
  const Finding* finding = Find(report, "tc-misaligned-dims");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.1);
  EXPECT_NE(finding->evidence.find("50257"), std::string::npos);
}

TEST(MisalignedDimsTest, StaysSilentWhereItIsAsFast) {
  // The threshold is 70 % of the aligned rate.
  EXPECT_TRUE(IsClean(With({{Product(4096, 2048, 50257), 5'600},
                            {Product(4096, 2048, 50304), 4'000}}),
                      "tc-misaligned-dims"));
  EXPECT_FALSE(IsClean(With({{Product(4096, 2048, 50257), 5'800},
                             {Product(4096, 2048, 50304), 4'000}}),
                       "tc-misaligned-dims"));
}

TEST(MisalignedDimsTest, PromisesNoMoreThanMemoryAllows) {
  // A thin product writes 4 GB, which takes 2.6 ms at 80 % of 2039 GB/s with
  // any alignment.
  const Report report = With({{Product(45001, 64, 45001), 5'000, kNarrow},
                              {Product(4096, 4096, 8192), 2'000}});
  const Finding* finding = Find(report, "tc-misaligned-dims");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 5 - 2.49, 0.05);
}

TEST(MisalignedDimsTest, AnOddBatchIsHarmless) {
  EXPECT_TRUE(IsClean(
      With({{Product(37, 4096, 4096), 800}, {Product(40, 4096, 4096), 100}}),
      "tc-misaligned-dims"));
}

TEST(MisalignedDimsTest, FiresOnKernelsWithNarrowLoads) {
  const Report report = With({{Product(5185, 64, 5185), 1'000, kNarrow},
                              {Product(512, 512, 512), 10}});
  EXPECT_NE(Find(report, "tc-misaligned-dims"), nullptr);
  EXPECT_TRUE(IsClean(With({{Product(5184, 64, 5184), 1'000, kNarrow}}),
                      "tc-misaligned-dims"));
}

// Without recorded strides, nothing shows that the first operand is transposed.
TEST(MisalignedDimsTest, SeesAMisalignedDimensionByANarrowKernel) {
  const Report report =
      With({{"(c10::Half[50257,4096],c10::Half[4096,2048])", 8'000, kNarrow},
            {Product(4096, 2048, 50304), 4'000}});
  const Finding* finding = Find(report, "tc-misaligned-dims");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.1);
}

TEST(MisalignedDimsTest, LeavesProductsOfAttentionToAFusedKernel) {
  // Attention scores of 1001 x 1001: padding the sequence would speed the
  // products up, but a fused kernel needs no padding.
  const auto with = [](const char* between) {
    ComputeText text;
    for (int i = 0; i < 3; ++i) {
      text.Op("aten::bmm", "(c10::Half[16,1001,64],c10::Half[16,64,1001])",
              {{kNarrow, 3'000}});
      text.Op(between, "(c10::Half[16,1001,1001])", {{"softmax", 2'000}});
      text.Op("aten::bmm", "(c10::Half[16,1001,1001],c10::Half[16,1001,64])",
              {{kNarrow, 3'000}});
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report attention = with("aten::_softmax");
  EXPECT_NE(Find(attention, "attention-by-hand"), nullptr);
  EXPECT_EQ(Find(attention, "tc-misaligned-dims"), nullptr);
  EXPECT_NE(Find(with("aten::tanh"), "tc-misaligned-dims"), nullptr);
}

TEST(MisalignedDimsTest, StaysSilentOnATinyClassifier) {
  EXPECT_TRUE(IsClean(
      With({{Product(32, 512, 10), 5}, {Product(4096, 4096, 4096), 5'000}}),
      "tc-misaligned-dims"));
}

TEST(MisalignedDimsTest, CannotLookWithoutShapes) {
  EXPECT_NE(WhySkipped(With({{"", 1'000}}), "tc-misaligned-dims"), "");
}

}  // namespace
}  // namespace stepscope::alignment_test
