#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::diagonals_test {
namespace {

constexpr const char* kRule = "diagonal-product";
constexpr const char* kMake = "inputs=(float[400],Scalar=\"0\") aten::diag";
constexpr const char* kSquare =
    "inputs=(float[400,400],float[400,400]) aten::matmul";

// Steps of 10 ms, in which each of `ops` takes 1 ms.
Report Of(const std::vector<std::string>& ops) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    for (const std::string& op : ops) text.Op(op, 1'000);
    text.Op("aten::sort", 10'000 - 1'000 * static_cast<int64_t>(ops.size()));
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DiagonalsTest, FindsBothProductsOfANormalisation) {
  const Report report = Of({kMake, kSquare, kSquare});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.01);
  EXPECT_NE(finding->evidence.find(
                "aten::diag makes a diagonal matrix of [400, 400], and only "
                "products take it"),
            std::string::npos)
      << finding->evidence;
}

TEST(DiagonalsTest, FindsOneProduct) {
  const Report report =
      Of({kMake, "inputs=(float[400,400],float[400,32]) aten::mm",
          "inputs=(float[400,32]) aten::relu"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_FALSE(IsClean(Of({"inputs=(float[8,64],Scalar=\"0\") aten::diag_embed",
                           "inputs=(float[8,64,64],float[8,64,16]) aten::bmm"}),
                       kRule));
}

// The normalised matrix then multiplies features. That matrix is not diagonal,
// so this product does not count.
TEST(DiagonalsTest, IgnoresProductsOfTheResult) {
  const Report report =
      Of({kMake, kSquare, kSquare,
          "inputs=(float[400,400],float[400,32]) aten::matmul"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.01);
}

TEST(DiagonalsTest, StaysSilentIfAnotherOpNeedsTheMatrix) {
  EXPECT_TRUE(IsClean(
      Of({kMake, "inputs=(float[400,400],float[400,400]) aten::add", kSquare}),
      kRule));
  // diag() of a matrix returns a vector.
  EXPECT_TRUE(IsClean(
      Of({"inputs=(float[400,400],Scalar=\"0\") aten::diag", kSquare}), kRule));
  // The values lie beside the diagonal.
  EXPECT_TRUE(IsClean(
      Of({"inputs=(float[400],Scalar=\"1\") aten::diag", kSquare}), kRule));
  EXPECT_TRUE(IsClean(Of({"inputs=(float[8],Scalar=\"0\") aten::diag",
                          "inputs=(float[8,8],float[8,8]) aten::mm"}),
                      kRule));
}

constexpr const char* kCovariance = "diagonal-covariance";
constexpr const char* kEmbed =
    "inputs=(float[128,32],Scalar=\"0\") aten::diag_embed";
constexpr const char* kCholesky =
    "inputs=(float[128,32,32]) aten::linalg_cholesky";

TEST(DiagonalsTest, FindsAFactorisedDiagonalCovariance) {
  const Report report =
      Of({kEmbed, kCholesky, "inputs=(float[64,64]) aten::relu",
          "inputs=(float[128,32,32],float[128,32,32]) "
          "aten::linalg_solve_triangular"});
  const Finding* finding = Find(report, kCovariance);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.01);
  EXPECT_NE(finding->evidence.find("diagonal matrices of [128, 32, 32], and "
                                   "aten::linalg_cholesky factorises them"),
            std::string::npos)
      << finding->evidence;
}

// Example: the Jacobian of a coupling layer.
TEST(DiagonalsTest, FindsTheDeterminantOfADiagonalMatrix) {
  const Report report =
      Of({kEmbed, "inputs=(float[128,32,32]) aten::linalg_slogdet"});
  const Finding* finding = Find(report, kCovariance);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("scale.log().sum(-1)"), std::string::npos);
  EXPECT_TRUE(
      IsClean(Of({kEmbed, "inputs=(float[128,16,16]) aten::linalg_slogdet"}),
              kCovariance));
}

TEST(DiagonalsTest, AllowsFactorisingAFullCovariance) {
  EXPECT_TRUE(IsClean(Of({kCholesky}), kCovariance));
  const std::string both = "inputs=(float[128,32,32],float[128,32,32]) ";
  EXPECT_TRUE(
      IsClean(Of({kEmbed, both + "aten::add", kCholesky}), kCovariance));
  EXPECT_FALSE(
      IsClean(Of({kEmbed, both + "aten::isclose", kCholesky}), kCovariance));
  EXPECT_TRUE(
      IsClean(Of({kEmbed, "inputs=(float[128,8,8]) aten::linalg_cholesky"}),
              kCovariance));
}

}  // namespace
}  // namespace stepscope::diagonals_test
