#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::products_test {
namespace {

constexpr const char* kRule = "product-order";

// Steps of 10 ms. Each of `lines` is an op of 1 ms, with a node of 1 ms if
// `trains`. A sort fills the rest.
Report StepOf(const std::vector<std::string>& lines, bool trains = false) {
  CpuText text;
  int sequence = 0;
  for (int i = 0; i < 4; ++i) {
    int64_t rest = 10'000;
    const int first = sequence;
    for (const std::string& line : lines) {
      text.Op(
          (trains ? "sequence=" + std::to_string(sequence++) + " " : "") + line,
          1'000);
      rest -= 1'000;
    }
    while (sequence > first && trains) {
      text.Nested("kind=backward sequence=" + std::to_string(--sequence) +
                      " MmBackward0",
                  1'000, "aten::mm", 990);
      rest -= 1'000;
    }
    sequence = first + static_cast<int>(lines.size());
    text.Op("aten::sort", rest);
    text.EndStep();
  }
  return text.Analyzed();
}

constexpr const char* kEnlarge =
    "inputs=(float[6,64,24,24],ScalarList=\"[96, 96]\",Scalar=\"False\",) "
    "aten::upsample_bilinear2d";
std::string Convolution(const std::string& input, const std::string& weight,
                        const std::string& stride = "[1, 1]") {
  return "inputs=(" + input + "," + weight + ",float[5],ScalarList=\"" +
         stride + "\",ScalarList=\"[0, 0]\",ScalarList=\"[1, 1]\"," +
         "Scalar=\"1\") aten::conv2d";
}
const std::string kClassify =
    Convolution("float[6,64,96,96]", "float[5,64,1,1]");

struct Graph {
  std::string nodes = "1000";  // number of nodes to gather rows from
  std::string width = "64";    // width after the projection
  std::string messages = "";   // an op on the messages
  std::string sums = "";       // an op on the sums
  bool trains = false;
};

Report Of(const Graph& how) {
  std::vector<std::string> lines = {
      "inputs=(float[" + how.nodes +
      ",128],Scalar=\"0\",long int[9000]) aten::index_select"};
  if (!how.messages.empty()) lines.push_back(how.messages);
  lines.push_back(
      "inputs=(float[1000,128],Scalar=\"0\",long "
      "int[9000],float[9000,128]) aten::index_add");
  if (!how.sums.empty()) lines.push_back(how.sums);
  lines.push_back("inputs=(float[1000,128],float[" + how.width +
                  ",128],float[" + how.width + "]) aten::linear");
  return StepOf(lines, how.trains);
}

TEST(ProductOrderTest, ProjectsBeforeTheSum) {
  const Report report = Of(Graph{.trains = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.01);  // without the product
  EXPECT_NE(finding->evidence.find("of [1000, 128], and aten::linear then only "
                                   "projects them to a width of 64"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->fix_python.find("once before training"),
            std::string::npos);
}

TEST(ProductOrderTest, AdvisesToSumFixedFeaturesOnce) {
  const Report report = Of(Graph{});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("once before training"),
            std::string::npos);
}

TEST(ProductOrderTest, AllowsScaledMessagesAndSums) {
  EXPECT_FALSE(IsClean(
      Of(Graph{.messages = "inputs=(float[9000,128],float[9000,1]) aten::mul",
               .sums = "inputs=(float[1000,128],float[1000,1]) aten::div"}),
      kRule));
  EXPECT_TRUE(IsClean(
      Of(Graph{.messages =
                   "inputs=(float[9000,128],float[9000,128]) aten::mul"}),
      kRule));
  EXPECT_TRUE(IsClean(
      Of(Graph{.messages = "inputs=(float[9000,128]) aten::relu"}), kRule));
  EXPECT_TRUE(
      IsClean(Of(Graph{.sums = "inputs=(float[1000,128]) aten::relu"}), kRule));
}

TEST(ProductOrderTest, ProjectsToHalfTheWidth) {
  EXPECT_TRUE(IsClean(Of(Graph{.width = "65"}), kRule));
  EXPECT_FALSE(IsClean(Of(Graph{.width = "64"}), kRule));
}

// With sampled neighbours, more rows would be projected before the sum than
// after it.
TEST(ProductOrderTest, StaysSilentIfThereAreMoreRowsThanSums) {
  EXPECT_TRUE(IsClean(Of(Graph{.nodes = "1001"}), kRule));
}

std::string Mm(const std::string& left, const std::string& right) {
  return "inputs=(float[" + left + "],float[" + right + "]) aten::mm";
}

TEST(ProductOrderTest, ChangesTheBrackets) {
  const Report report =
      StepOf({Mm("256,512", "512,300"), Mm("256,300", "300,2")});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  const double now = 256.0 * 512 * 300 + 256.0 * 300 * 2;
  const double other = 512.0 * 300 * 2 + 256.0 * 512 * 2;
  EXPECT_NEAR(finding->gain.expected_ms, 2 * (1 - other / now), 0.01);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
}

// The program multiplies low-rank weights in each step.
TEST(ProductOrderTest, BothSidesAndBatches) {
  EXPECT_FALSE(
      IsClean(StepOf({Mm("512,8", "8,300"), Mm("64,512", "512,300")}), kRule));
  EXPECT_FALSE(
      IsClean(StepOf({Mm("512,8", "8,300"),
                      "inputs=(float[64,300],float[512,300]) aten::linear"}),
              kRule));
  EXPECT_FALSE(
      IsClean(StepOf({"inputs=(float[8,512,32],float[8,32,500]) aten::bmm",
                      "inputs=(float[8,512,500],float[8,500,32]) aten::bmm"}),
              kRule));
}

TEST(ProductOrderTest, StaysSilentIfTheOtherOrderNeedsAsMuch) {
  EXPECT_TRUE(
      IsClean(StepOf({Mm("64,512", "512,8"), Mm("64,8", "8,300")}), kRule));
  // Three projections of one input.
  EXPECT_TRUE(IsClean(
      StepOf({Mm("4096,64", "64,64"), Mm("4096,64", "64,64"),
              Mm("4096,64", "64,64"), "inputs=(float[4096,64]) aten::view"}),
      kRule));
}

TEST(ProductOrderTest, StaysSilentIfAnotherOpReadsTheProduct) {
  const std::string first = Mm("256,512", "512,300");
  const std::string then = Mm("256,300", "300,2");
  EXPECT_TRUE(IsClean(
      StepOf({first, "inputs=(float[256,300]) aten::relu", then}), kRule));
  EXPECT_TRUE(IsClean(
      StepOf({first, then, "inputs=(float[256,300]) aten::sum"}), kRule));
  EXPECT_TRUE(IsClean(StepOf({first, then, then}), kRule));
}

// A view has as many elements as its tensor. Some files have the sizes of
// views only.
TEST(ProductOrderTest, StaysSilentIfAnotherOpMayReadAViewOfTheProduct) {
  const std::string first = Mm("256,512", "512,300");
  const std::string then = Mm("256,300", "300,2");
  EXPECT_TRUE(IsClean(StepOf({first, "inputs=(float[76800]) aten::gelu", then}),
                      kRule));
  EXPECT_TRUE(IsClean(
      StepOf({first, "inputs=(float[8,32,300]) aten::gelu", then}), kRule));
  EXPECT_FALSE(IsClean(
      StepOf({first, "inputs=(float[8,32,300]) aten::view", then}), kRule));
  EXPECT_FALSE(IsClean(
      StepOf({first, "inputs=(float[256,512]) aten::gelu", then}), kRule));
  // After the second product, such a tensor may be any other one.
  EXPECT_FALSE(IsClean(
      StepOf({first, then, "inputs=(float[76800]) aten::gelu"}), kRule));
  EXPECT_TRUE(
      IsClean(Of(Graph{.sums = "inputs=(float[128000]) aten::relu"}), kRule));
  EXPECT_TRUE(IsClean(
      StepOf({kEnlarge, "inputs=(float[3538944]) aten::relu", kClassify}),
      kRule));
}

// An op without recorded arguments may read it if it computes in the graph.
TEST(ProductOrderTest, StaysSilentIfAnOpWithoutArgumentsMayReadTheProduct) {
  const std::string first = Mm("256,512", "512,300");
  const std::string then = Mm("256,300", "300,2");
  EXPECT_TRUE(IsClean(StepOf({first, "aten::gelu", then}), kRule));
  EXPECT_TRUE(IsClean(StepOf({first, "aten::fft_rfft", then}, true), kRule));
  EXPECT_FALSE(IsClean(StepOf({first, "aten::fft_rfft", then}), kRule));
  EXPECT_FALSE(IsClean(StepOf({first, "aten::view", then}, true), kRule));
}

// The next step may continue with this step's result.
TEST(ProductOrderTest, IgnoresASquareMatrixCarriedToTheNextStep) {
  const std::vector<std::string> lines = {Mm("300,300", "300,300"),
                                          Mm("300,300", "300,2")};
  const Report carried = StepOf(lines);
  ASSERT_NE(Find(carried, kRule), nullptr);
  EXPECT_EQ(Find(carried, kRule)->confidence, Confidence::kHint);
  const Report trained = StepOf(lines, true);
  ASSERT_NE(Find(trained, kRule), nullptr);
  EXPECT_EQ(Find(trained, kRule)->confidence, Confidence::kStrong);
}

TEST(ProductOrderTest, AMatrixOfAGraphSumsUp) {
  const std::string spreads =
      "inputs=(float[900,900],float[900,128]) "
      "aten::matmul";
  const auto project = [](const std::string& width) {
    return "inputs=(float[900,128],float[" + width + ",128]) aten::linear";
  };
  // Two projections of the sums.
  EXPECT_FALSE(IsClean(StepOf({spreads, project("32"), project("16")}), kRule));
  EXPECT_TRUE(IsClean(StepOf({spreads, project("32"), project("64")}), kRule));
}

TEST(ProductOrderTest, ClassifiesBeforeEnlarging) {
  const Report report = StepOf({kEnlarge, kClassify}, true);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // 5/64 of 2 ms for enlarging remain, and 1/16 of 2 ms for the convolution.
  EXPECT_NEAR(finding->gain.expected_ms, 4 - 2 * 5.0 / 64 - 2.0 / 16, 0.01);
  EXPECT_NE(finding->evidence.find("aten::upsample_bilinear2d enlarges to [6, "
                                   "64, 96, 96], and aten::conv2d, with a "
                                   "kernel of one pixel, then makes 5 channels "
                                   "of the 64"),
            std::string::npos)
      << finding->evidence;
}

TEST(ProductOrderTest, StaysSilentIfOtherOpsNeedTheEnlargedTensor) {
  EXPECT_TRUE(IsClean(
      StepOf({kEnlarge, "inputs=(float[6,64,96,96]) aten::relu", kClassify}),
      kRule));
  // The convolution sums over neighbours, skips places, or hardly reduces the
  // channels.
  EXPECT_TRUE(IsClean(
      StepOf({kEnlarge, Convolution("float[6,64,96,96]", "float[5,64,3,3]")}),
      kRule));
  EXPECT_TRUE(IsClean(
      StepOf({kEnlarge,
              Convolution("float[6,64,96,96]", "float[5,64,1,1]", "[2, 2]")}),
      kRule));
  EXPECT_TRUE(IsClean(
      StepOf({kEnlarge, Convolution("float[6,64,96,96]", "float[48,64,1,1]")}),
      kRule));
}

// Attention without a softmax: each row is divided by its sum, before or after
// the second product.
TEST(ProductOrderTest, AllowsRowsDividedByTheirSums) {
  const std::string scores =
      "inputs=(float[8,384,16],float[8,16,384]) aten::matmul";
  const std::string sum =
      "inputs=(float[8,384,384],ScalarList=\"[-1]\",Scalar=\"True\") aten::sum";
  const std::string div = "inputs=(float[8,384,384],float[8,384,1]) aten::div";
  const std::string values =
      "inputs=(float[8,384,384],float[8,384,16]) aten::matmul";
  const Report report = StepOf({scores, sum, div, values});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4 * (1 - 16.0 / 384), 0.01);
  // The next layer has matrices of the same size.
  EXPECT_NEAR(
      Find(StepOf({scores, sum, div, values, scores, sum, div, values}), kRule)
          ->gain.expected_ms,
      8 * (1 - 16.0 / 384), 0.01);
  EXPECT_TRUE(IsClean(
      StepOf({scores, "inputs=(float[8,384,384]) aten::softmax", values}),
      kRule));
  // Sums of columns do not belong to a row.
  EXPECT_TRUE(IsClean(
      StepOf({scores,
              "inputs=(float[8,384,384],ScalarList=\"[1]\",Scalar=\"True\") "
              "aten::sum",
              div, values}),
      kRule));
}

}  // namespace
}  // namespace stepscope::products_test
