#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::sparse_products_test {
namespace {

constexpr const char* kRule = "one-hot-product";

// Steps of 10 ms. Each of `lines` is an op of 1 ms; the last one has a node of
// 2 ms.
Report Of(const std::vector<std::string>& lines) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    const std::string sequence = "sequence=" + std::to_string(i) + " ";
    int64_t rest = 8'000;
    for (const std::string& line : lines) {
      text.Op((&line == &lines.back() ? sequence : "") + line, 1'000);
      rest -= 1'000;
    }
    text.Nested("kind=backward " + sequence + "MmBackward0", 2'000, "aten::mm",
                1'990);
    text.Op("aten::sort", rest);
    text.EndStep();
  }
  return text.Analyzed();
}

const std::string kOneHot =
    "inputs=(long int[512],Scalar=\"300\") aten::one_hot";
const std::string kFloat = "inputs=(long int[512,300],Scalar=\"6\") aten::to";
const std::string kLinear =
    "inputs=(float[512,300],float[64,300],float[64]) aten::linear";

TEST(OneHotProductTest, AdvisesToLookRowsUp) {
  const Report report = Of({kOneHot, kFloat, kLinear});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 5, 0.01);
  EXPECT_NE(finding->evidence.find("rows of 300 classes, [512, 300]"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("F.embedding(index, weight)"),
            std::string::npos);
}

TEST(OneHotProductTest, AllowsOneHotWithoutTheNumberOfClasses) {
  EXPECT_FALSE(IsClean(Of({"inputs=(long int[512],Scalar=\"-1\") aten::one_hot",
                           kFloat, kLinear}),
                       kRule));
}

TEST(OneHotProductTest, SeesScatteredOnes) {
  const auto scattered = [](const std::string& index) {
    return Of({"inputs=(float[512,300],Scalar=\"1\",long int[512," + index +
                   "],Scalar=\"1\") aten::scatter_",
               kLinear});
  };
  EXPECT_FALSE(IsClean(scattered("1"), kRule));
  EXPECT_TRUE(IsClean(scattered("2"), kRule));
  EXPECT_TRUE(IsClean(
      Of({"inputs=(float[512,300],Scalar=\"1\",long int[512,1],float[512,1]) "
          "aten::scatter_",
          kLinear}),
      kRule));
}

TEST(OneHotProductTest, AdvisesIndexAddForSumsOfGroups) {
  const Report report = Of({kOneHot, kFloat, "inputs=(float[512,300]) aten::t",
                            "inputs=(float[300,512],float[512,64]) aten::mm"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("index_add"), std::string::npos);
}

TEST(OneHotProductTest, StaysSilentIfOtherOpsReadTheRows) {
  EXPECT_TRUE(IsClean(
      Of({kOneHot, kFloat,
          "inputs=(TensorList(float[512,300],float[512,8]),Scalar=\"1\") "
          "aten::cat",
          kLinear}),
      kRule));
  EXPECT_TRUE(
      IsClean(Of({kOneHot, kFloat,
                  "inputs=(float[512,300],float[512,300]) aten::mul", kLinear}),
              kRule));
  EXPECT_TRUE(IsClean(Of({kOneHot, kFloat}), kRule));
  // The rows are weights of another product.
  EXPECT_TRUE(IsClean(
      Of({kOneHot, kFloat, "inputs=(float[64,512],float[512,300]) aten::mm"}),
      kRule));
}

TEST(OneHotProductTest, IgnoresFewClasses) {
  const auto with = [](const std::string& classes) {
    return Of(
        {"inputs=(long int[512],Scalar=\"" + classes + "\") aten::one_hot",
         "inputs=(float[512," + classes + "],float[" + classes +
             ",64]) aten::mm"});
  };
  EXPECT_TRUE(IsClean(with("63"), kRule));
  EXPECT_FALSE(IsClean(with("64"), kRule));
}

constexpr const char* kSparse = "sparse-kept-dense";
const std::string kSpread = "inputs=(float[512,512],float[512,32]) aten::mm";

TEST(SparseKeptDenseTest, FindsAConstantSquareTimesFeatures) {
  const Report report =
      Of({"inputs=(float[512,64],float[32,64]) aten::linear", kSpread});
  const Finding* finding = Find(report, kSparse);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.01);
  EXPECT_NE(finding->evidence.find("a matrix of [512, 512] that is neither"),
            std::string::npos)
      << finding->evidence;
}

TEST(SparseKeptDenseTest, StaysSilentIfTheStepComputesOrReadsTheMatrix) {
  for (const std::string op :
       {"inputs=(float[512,512],Scalar=\"-1\") aten::softmax",
        "inputs=(float[512,64],float[64,512]) aten::mm"}) {
    EXPECT_TRUE(IsClean(Of({op, kSpread}), kSparse)) << op;
  }
}

TEST(SparseKeptDenseTest, SeesEdgesWrittenInTheStep) {
  const std::string zeros =
      "inputs=(ScalarList=\"[512, 512]\",Scalar=\"6\") aten::zeros";
  const auto written = [](const std::string& values) {
    return "inputs=(float[512,512],-,float[" + values + "]) aten::index_put_";
  };
  const std::string edges = written("13000");
  const Report report = Of({zeros, edges, kSpread});
  const Finding* finding = Find(report, kSparse);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("writes by index"), std::string::npos)
      << finding->evidence;
  // Includes the ops that fill the matrix.
  EXPECT_NEAR(finding->gain.expected_ms, 5, 0.01);
  // Too many edges (more than 5 %), and an unknown number of them.
  EXPECT_TRUE(IsClean(Of({zeros, written("14000"), kSpread}), kSparse));
  EXPECT_TRUE(IsClean(Of({zeros, written(""), kSpread}), kSparse));
  // Counts degrees and divides by them.
  EXPECT_FALSE(
      IsClean(Of({zeros, edges,
                  "inputs=(float[512,512],float[512,1]) aten::div", kSpread}),
              kSparse));
  EXPECT_TRUE(
      IsClean(Of({zeros, edges, "inputs=(float[512,512]) aten::exp", kSpread}),
              kSparse));
}

TEST(SparseKeptDenseTest, IgnoresSmallAndWideMatrices) {
  EXPECT_TRUE(
      IsClean(Of({"inputs=(float[255,255],float[255,32]) aten::mm"}), kSparse));
  EXPECT_TRUE(IsClean(Of({"inputs=(float[512,512],float[512,512]) aten::mm"}),
                      kSparse));
}

// Steps with a product that calls the op `forward`, and whose node calls the op
// `backward`.
Report WithInner(const std::string& forward, const std::string& backward) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    const std::string sequence = "sequence=" + std::to_string(i) + " ";
    text.Nested(sequence + kSpread, 1'000, forward, 900);
    text.Nested("kind=backward " + sequence + "MmBackward0", 2'000, backward,
                1'900);
    text.Op("aten::sort", 7'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(SparseKeptDenseTest, StaysSilentIfTheMatrixIsTrainedOrSparse) {
  const std::string inner = "inputs=(float[512,512],float[512,32]) aten::mm";
  EXPECT_FALSE(IsClean(WithInner("aten::zeros", inner), kSparse));
  EXPECT_TRUE(IsClean(WithInner("aten::_nnz", inner), kSparse));
  EXPECT_TRUE(IsClean(
      WithInner("aten::zeros", "inputs=(float[512,32],float[32,512]) aten::mm"),
      kSparse));
  EXPECT_TRUE(IsClean(WithInner("aten::_sparse_addmm", inner), kSparse));
}

}  // namespace
}  // namespace stepscope::sparse_products_test
