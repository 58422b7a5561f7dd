#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::broadcasts_test {
namespace {

constexpr const char* kRule = "broadcast-contraction";

struct Pairs {
  std::string combine = "aten::sub";
  std::string left = "float[128,1,64]", right = "float[1,128,64]";
  std::string made = "float[128,128,64]";
  std::string then = "aten::square";
  std::string reduce = "aten::sum";
  std::string dims = "[2]";
  std::string before = {};  // an op before the first one
  std::string after = {};   // sizes that an op behind the sum takes
};

// Steps of 10 ms: combining all pairs takes 1 ms, squaring 1 ms and summing 0.5
// ms. Each of their nodes takes 2 ms.
Report Of(const Pairs& how) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    const std::string first = "sequence=" + std::to_string(2 * i);
    const std::string second = "sequence=" + std::to_string(2 * i + 1);
    text.Op("inputs=(float[128,64],float[64,64]) aten::mm", 5'500);
    if (!how.before.empty()) text.Op(how.before, 500);
    text.Op(first + " inputs=(" + how.left + "," + how.right + ",Scalar) " +
                how.combine,
            1'000);
    if (!how.then.empty()) {
      text.Op(second + " inputs=(" + how.made + ") " + how.then, 1'000);
    }
    text.Op("inputs=(" + how.made +
                (how.dims.empty() ? ",ScalarList) "
                                  : ",ScalarList=\"" + how.dims + "\") ") +
                how.reduce,
            500);
    if (!how.after.empty()) text.Op("inputs=(" + how.after + ") aten::sqrt", 1);
    text.Nested("kind=backward " + second + " PowBackward0", 1'000, "aten::mul",
                990);
    text.Nested("kind=backward " + first + " SubBackward0", 1'000, "aten::neg",
                990);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(BroadcastContractionTest, AdvisesAMatrixProductForDistances) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 4.5, 0.01);
  EXPECT_NE(finding->evidence.find("[128, 1, 64] and [1, 128, 64] are "
                                   "subtracted"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.cdist"), std::string::npos);
}

TEST(BroadcastContractionTest, AdvisesAMatrixProductForSumsOfProducts) {
  const Report report = Of({.combine = "aten::mul", .then = ""});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("x @ y.T"), std::string::npos);
  // A tensor may lack leading dimensions, so dimensions count from the last.
  EXPECT_FALSE(IsClean(Of({.combine = "aten::mul",
                           .right = "float[128,64]",
                           .then = "",
                           .dims = "[-1]"}),
                       kRule));
}

TEST(BroadcastContractionTest, StaysSilentIfOtherOpsNeedTheLargeTensor) {
  EXPECT_TRUE(IsClean(Of({.then = "aten::relu"}), kRule));
  EXPECT_TRUE(IsClean(Of({.combine = "aten::add"}), kRule));
  EXPECT_TRUE(IsClean(Of({.combine = "aten::mul"}), kRule));
  EXPECT_TRUE(IsClean(Of({.reduce = "aten::amin"}), kRule));
}

TEST(BroadcastContractionTest, NeedsADimensionThatBothHave) {
  EXPECT_TRUE(IsClean(Of({.dims = "[1]"}), kRule));
  EXPECT_TRUE(IsClean(Of({.dims = "[]"}), kRule));
  EXPECT_TRUE(IsClean(Of({.left = "float[128,128,64]"}), kRule));
}

// Files of torch before 2.1 have no values of arguments.
TEST(BroadcastContractionTest, TheResultTellsWhichDimensionWasSummedUp) {
  EXPECT_FALSE(IsClean(Of({.dims = "", .after = "float[128,128]"}), kRule));
  EXPECT_TRUE(IsClean(Of({.dims = "", .after = "float[128,64]"}), kRule));
  EXPECT_TRUE(IsClean(Of({.dims = ""}), kRule));
}

TEST(BroadcastContractionTest, SmallTensorsStayInTheCache) {
  const auto with = [](const std::string& rows) {
    return Of({.left = "float[" + rows + ",1,64]",
               .made = "float[" + rows + ",128,64]"});
  };
  EXPECT_TRUE(IsClean(with("31"), kRule));
  EXPECT_FALSE(IsClean(with("32"), kRule));
}

// Ops that broadcast and reduce in one call.
struct Whole {
  std::string op = "aten::cosine_similarity";
  std::string left = "float[128,1,64]", right = "float[1,128,64]";
  std::string rest = ",Scalar=\"-1\",Scalar=\"1e-08\"";
};

Report Of(const Whole& how) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    const std::string sequence = "sequence=" + std::to_string(i);
    text.Op("inputs=(float[128,64],float[64,64]) aten::mm", 5'500);
    text.Nested(
        "inputs=(" + how.left + "," + how.right + how.rest + ") " + how.op,
        2'000,
        sequence +
            " inputs=(float[128,128,64],ScalarList=\"[2]\") "
            "aten::sum",
        1'990);
    text.Nested("kind=backward " + sequence + " SumBackward1", 2'000,
                "aten::expand", 1'990);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(BroadcastContractionTest, SeesOpsThatBroadcastAndReduce) {
  const Report report = Of(Whole{});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.01);
  EXPECT_NE(finding->evidence.find("multiplied by cosine_similarity"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("F.normalize"), std::string::npos);
  const Report distances =
      Of(Whole{.op = "aten::pairwise_distance", .rest = ""});
  finding = Find(distances, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("torch.cdist"), std::string::npos);
}

TEST(BroadcastContractionTest, IgnoresOpsThatCombineRowsWithRows) {
  EXPECT_TRUE(
      IsClean(Of(Whole{.rest = ",Scalar=\"1\",Scalar=\"1e-08\""}), kRule));
  // Combines rows with rows, not all pairs.
  EXPECT_TRUE(IsClean(
      Of(Whole{.left = "float[128,128,64]", .right = "float[128,128,64]"}),
      kRule));
}

// The sum of q * (k + a).
TEST(BroadcastContractionTest, DistributesAProductWithASum) {
  Pairs how = {.combine = "aten::mul",
               .left = "float[128,1,64]",
               .right = "float[128,128,64]",
               .then = "",
               .before = "inputs=(float[1,128,64],float[128,1,64]) aten::add"};
  const Report report = Of(how);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(finding->fix_python.starts_with("distribute the product"));
  // The program already has a tensor of this size.
  how.before = "inputs=(float[128,128,64],float[128,128,64]) aten::add";
  EXPECT_TRUE(IsClean(Of(how), kRule));
}

}  // namespace
}  // namespace stepscope::broadcasts_test
