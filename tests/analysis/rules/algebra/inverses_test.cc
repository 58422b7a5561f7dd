#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::inverses_test {
namespace {

constexpr const char* kRule = "explicit-inverse";

// Steps of 10 ms. Each of `lines` is an op of 1 ms. If the program trains, each
// op except for products has a node of 2 ms.
Report Of(const std::vector<std::string>& lines, bool trains = true) {
  CpuText text;
  int sequence = 0;
  for (int i = 0; i < 4; ++i) {
    int64_t rest = 10'000;
    std::vector<int> nodes;
    for (const std::string& line : lines) {
      if (trains && line.find("mm") == std::string::npos) {
        text.Op("sequence=" + std::to_string(sequence) + " " + line, 1'000);
        nodes.push_back(sequence++);
      } else {
        text.Op(line, 1'000);
      }
      rest -= 1'000;
    }
    for (int node : nodes) {
      text.Nested(
          "kind=backward sequence=" + std::to_string(node) + " LinalgBackward0",
          2'000, "aten::mm", 1'990);
      rest -= 2'000;
    }
    text.Op("aten::sort", rest);
    text.EndStep();
  }
  return text.Analyzed();
}

std::string On(const std::string& op, const std::string& of = "500,500") {
  return "inputs=(double[" + of + "]) aten::" + op;
}
std::string Times(const std::string& size = "500,500") {
  return "inputs=(double[" + size + "],double[500,1]) aten::mm";
}

TEST(ExplicitInverseTest, AdvisesToSolveInsteadOfInverting) {
  const Report report = Of({On("linalg_inv"), Times()});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.01);
  EXPECT_NE(finding->fix_python.find("torch.linalg.solve(K, b)"),
            std::string::npos);
}

TEST(ExplicitInverseTest, AdvisesOneFactorForTheDeterminantToo) {
  const Report report = Of({On("linalg_inv"), Times(), On("logdet")});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // Saves the inverse with its gradient, and the determinant without its
  // gradient.
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.01);
  EXPECT_NE(finding->fix_python.find("torch.cholesky_solve"),
            std::string::npos);
  EXPECT_FALSE(
      IsClean(Of({On("linalg_slogdet"), On("linalg_inv"), Times()}), kRule));
}

TEST(ExplicitInverseTest, SolvesAndTakesTheDeterminant) {
  const std::string solve =
      "inputs=(double[500,500],double[500,1]) aten::linalg_solve";
  const Report report = Of({On("logdet"), solve});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.01);
  EXPECT_NE(finding->evidence.find("The determinant alone takes 1.00 ms"),
            std::string::npos)
      << finding->evidence;
  // Another matrix is computed in between, or the matrix has another size.
  EXPECT_TRUE(IsClean(Of({On("logdet"), On("exp"), solve}), kRule));
  EXPECT_TRUE(IsClean(Of({On("logdet", "400,400"), solve}), kRule));
  EXPECT_TRUE(IsClean(Of({solve}), kRule));
}

// The matrix has no autograd node and comes from outside the step, so it may be
// a constant or data.
TEST(ExplicitInverseTest, AsksWhetherTheMatrixIsConstant) {
  const auto found = [](const std::vector<std::string>& lines, bool trains) {
    const Report report = Of(lines, trains);
    const Finding* finding = Find(report, kRule);
    return finding == nullptr ? Finding() : *finding;
  };
  for (const char* op : {"linalg_cholesky", "linalg_eigh"}) {
    const Finding finding = found({On(op), Times()}, false);
    EXPECT_EQ(finding.severity, FindingSeverity::kLow) << op;
    EXPECT_EQ(finding.confidence, Confidence::kHint);
    EXPECT_NE(finding.fix_python.find("once, before training"),
              std::string::npos)
        << finding.fix_python;
    // The matrix is computed in the step, may come from a batch, is changed, or
    // has a gradient.
    EXPECT_EQ(found({On("exp"), On(op)}, false).fix_python, "");
    EXPECT_EQ(
        found({"inputs=(double[900,500]) aten::cov", On(op)}, false).fix_python,
        "");
    EXPECT_EQ(found({On("select", "8,500,500"), On(op)}, false).fix_python, "");
    EXPECT_EQ(found({On("add_"), On(op)}, false).fix_python, "");
    EXPECT_EQ(found({On(op), Times()}, true).fix_python, "");
  }
  const Finding inverse = found({On("linalg_inv"), Times()}, false);
  EXPECT_EQ(inverse.confidence, Confidence::kStrong);
  EXPECT_NE(inverse.fix_python.find("torch.linalg.solve"), std::string::npos);
  EXPECT_NE(inverse.fix_python.find("once, before training"),
            std::string::npos);
  EXPECT_EQ(found({On("exp"), On("linalg_inv"), Times()}, false)
                .fix_python.find("once, before training"),
            std::string::npos);
}

// A solve of 1 ms in each of `times` time steps, of which factorising takes
// 0.8 ms. Its node makes a gradient of the right-hand side and, if the matrix
// is computed from parameters, one of the matrix.
Report Solving(int times, bool of_matrix = false, const std::string& also = "",
               const std::string& last = "aten::linalg_solve") {
  CpuText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    const int begun = sequence;
    for (int i = 0; i < times; ++i, ++sequence) {
      if (!also.empty()) text.Op(also, 10);
      const std::string number = "sequence=" + std::to_string(sequence) + " ";
      text.Nested(number + "inputs=(float[400,400],float[400,16]) " + last,
                  1'000, "inputs=(float[400,400]) aten::linalg_lu_factor_ex",
                  800,
                  "inputs=(float[400,400],int[400],float[400,16]) "
                  "aten::linalg_lu_solve",
                  190);
      text.Op("inputs=(float[400,16],float[400,1]) aten::add", 10);
    }
    for (int node = sequence; node-- > begun;) {
      const std::string head =
          "kind=backward sequence=" + std::to_string(node) +
          " LinalgSolveExBackward0";
      const std::string solve =
          "inputs=(float[400,400],int[400],float[400,16]) "
          "aten::linalg_lu_solve";
      if (of_matrix) {
        text.Nested(head, 300, solve, 190,
                    "inputs=(float[400,16],float[16,400]) aten::mm", 100);
      } else {
        text.Nested(head, 200, solve, 190);
      }
    }
    text.Op("aten::sort", 1'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(ExplicitInverseTest, AdvisesToKeepTheFactorOfATimeStep) {
  const Report report = Solving(5);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_NEAR(finding->gain.expected_ms, 5 * 0.8, 0.01);
  EXPECT_NE(finding->evidence.find("5 times per step"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.linalg.lu_solve"),
            std::string::npos);
  // Once per step it may be data.
  EXPECT_EQ(Find(Solving(1), kRule)->severity, FindingSeverity::kLow);
  // The matrix depends on parameters, or is computed anew each time.
  EXPECT_TRUE(IsClean(Solving(5, true), kRule));
  EXPECT_TRUE(
      IsClean(Solving(5, false, "inputs=(float[400,400]) aten::exp"), kRule));
  EXPECT_TRUE(IsClean(
      Solving(5, false,
              "inputs=(TensorList(float[200,400],float[200,400]),Scalar=\"0\") "
              "aten::cat"),
      kRule));
  EXPECT_FALSE(IsClean(
      Solving(5, false,
              "inputs=(TensorList(float[400,2],float[400,1]),Scalar=\"1\") "
              "aten::cat"),
      kRule));
}

TEST(ExplicitInverseTest, AllowsCholeskyWithItsDiagonal) {
  EXPECT_TRUE(
      IsClean(Of({On("linalg_cholesky"),
                  "inputs=(double[500,1],double[500,500]) aten::cholesky_solve",
                  On("diagonal")}),
              kRule));
}

TEST(ExplicitInverseTest, StaysSilentIfTheInverseIsRead) {
  EXPECT_TRUE(IsClean(Of({On("linalg_inv"), Times(), On("diagonal")}), kRule));
  EXPECT_TRUE(IsClean(Of({On("linalg_inv")}), kRule));
}

TEST(ExplicitInverseTest, IgnoresSmallMatrices) {
  EXPECT_TRUE(IsClean(Of({On("linalg_inv", "63,63"), Times("63,63")}), kRule));
  EXPECT_FALSE(IsClean(Of({On("linalg_inv", "64,64"), Times("64,64")}), kRule));
}

// The gradient of lstsq computes the pseudo-inverse anyway.
TEST(ExplicitInverseTest, AdvisesLstsqOnlyWithoutGradients) {
  const std::vector<std::string> lines = {On("linalg_pinv", "500,100"),
                                          Times("100,500")};
  const Report report = Of(lines, false);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.01);
  EXPECT_NE(finding->fix_python.find("torch.linalg.lstsq"), std::string::npos);
  EXPECT_TRUE(IsClean(Of(lines, true), kRule));
}

}  // namespace
}  // namespace stepscope::inverses_test
