#include <string>
#include <vector>

#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::written_functions_test {
namespace {

constexpr const char* kRule = "function-by-hand";

// Steps of 20 ms. Each of `ops` takes 1 ms, and so does its node if it
// `trains`.
Report Of(const std::vector<std::string>& ops, bool trains = true) {
  CpuText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    const int first = sequence;
    for (const std::string& op : ops) {
      text.Op(
          (trains ? "sequence=" + std::to_string(sequence++) + " " : "") + op,
          1'000);
    }
    text.Op("aten::sort", 2'000);
    for (int number = sequence; trains && number-- > first;) {
      text.Nested(
          "kind=backward sequence=" + std::to_string(number) + " XBackward0",
          1'000, "aten::mul", 990);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

std::string Mean(const std::string& dims, const std::string& over) {
  return "inputs=(float[" + dims + "],ScalarList=\"[" + over +
         "]\",Scalar=\"True\",) aten::mean";
}
std::string With(const std::string& name, const std::string& a,
                 const std::string& b) {
  return "inputs=(float[" + a + "],float[" + b + "]) aten::" + name;
}
std::string Alone(const std::string& name, const std::string& dims,
                  const std::string& number = "") {
  return "inputs=(float[" + dims + "]" +
         (number.empty() ? "" : ",Scalar=\"" + number + "\"") +
         ") aten::" + name;
}

// Returns the ops of (x - mean) / sqrt(var + eps) * scale + shift.
std::vector<std::string> Normalised(const std::string& dims,
                                    const std::string& over,
                                    const std::string& few,
                                    const std::string& weight) {
  return {Mean(dims, over),         With("sub", dims, few),
          Alone("pow", dims, "2"),  Mean(dims, over),
          Alone("add", few, "1"),   Alone("sqrt", few),
          With("div", dims, few),   With("mul", dims, weight),
          With("add", dims, weight)};
}

void Says(const Report& report, const std::string& words, double gain_ms) {
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr) << words;
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find(words), std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(finding->gain.expected_ms, gain_ms, 0.1);
}

TEST(WrittenFunctionsTest, FindsNormalisationsOfSeveralOps) {
  Says(Of(Normalised("16,64,128", "-1", "16,64,1", "128")),
       "layer normalisation (1 time per step); that of [16, 64, 128] in 9 ops",
       16);
  Says(Of(Normalised("16,32,8,8", "0, 2, 3", "1,32,1,1", "1,32,1,1")),
       "batch normalisation", 16);
  Says(Of({Alone("pow", "16,64,128", "2"), Mean("16,64,128", "-1"),
           Alone("add", "16,64,1", "1"), Alone("rsqrt", "16,64,1"),
           With("mul", "16,64,128", "16,64,1"),
           With("mul", "16,64,128", "128")}),
       "root mean square normalisation", 10);
}

TEST(WrittenFunctionsTest, IgnoresStatisticsWithoutAPyTorchOp) {
  // Over channels and height of an image: PyTorch has no op for that.
  EXPECT_TRUE(
      IsClean(Of(Normalised("16,32,8,8", "1, 2", "16,1,1,8", "8")), kRule));
  // Prepares an input, without gradients.
  EXPECT_TRUE(IsClean(
      Of(Normalised("16,64,128", "-1", "16,64,1", "128"), false), kRule));
  // Computes the distance of two points.
  EXPECT_TRUE(IsClean(
      Of({With("sub", "64,8", "64,8"), Alone("pow", "64,8", "2"),
          "inputs=(float[64,8],ScalarList=\"[1]\",Scalar=\"False\",) aten::sum",
          Alone("sqrt", "64"), Alone("mul", "64", "2")}),
      kRule));
}

TEST(WrittenFunctionsTest, FindsGeluFormulas) {
  Says(Of({Alone("mul", "256,512", "0.5"), Alone("pow", "256,512", "3"),
           Alone("mul", "256,512", "0.04"), With("add", "256,512", "256,512"),
           Alone("mul", "256,512", "0.8"), Alone("tanh", "256,512"),
           Alone("add", "256,512", "1"), With("mul", "256,512", "256,512")}),
       "GELU (1 time per step)", 14);
  Says(Of({Alone("div", "256,512", "1.41"), Alone("erf", "256,512"),
           Alone("add", "256,512", "1"), With("mul", "256,512", "256,512"),
           Alone("mul", "256,512", "0.5")}),
       "GELU (1 time per step)", 8);
  EXPECT_TRUE(IsClean(
      Of({Alone("mul", "256,512", "2"), Alone("tanh", "256,512"),
          Alone("add", "256,512", "1"), With("mul", "256,512", "256,512")}),
      kRule));
}

TEST(WrittenFunctionsTest, FindsCrossEntropyFormulas) {
  Says(Of({Alone("exp", "256,4000"), Alone("exp", "256,4000"),
           "inputs=(float[256,4000],ScalarList=\"[1]\",Scalar=\"True\",) "
           "aten::sum",
           With("div", "256,4000", "256,1"), Alone("add", "256,4000", "1"),
           Alone("log", "256,4000"), Alone("one_hot", "256", "4000"),
           With("mul", "256,4000", "256,4000"),
           "inputs=(float[256,4000],ScalarList=\"[1]\",Scalar=\"False\",) "
           "aten::sum"}),
       "cross entropy (1 time per step)", 16);
  EXPECT_FALSE(IsClean(
      Of({Alone("softmax", "256,40", "-1"), Alone("log", "256,40"),
          "inputs=(float[256,40],Scalar=\"1\",long int[256,1]) aten::gather"}),
      kRule));
  EXPECT_TRUE(
      IsClean(Of({Alone("relu", "256,40"), Alone("log", "256,40"),
                  "inputs=(float[256,40],ScalarList=\"[1]\",Scalar=\"False\",) "
                  "aten::sum"}),
              kRule));
}

TEST(WrittenFunctionsTest, FindsReductionsOfEmbeddings) {
  const std::string look_up =
      "inputs=(float[20000,128],long int[128,100],Scalar=\"-1\") "
      "aten::embedding";
  const std::string mean =
      "inputs=(float[128,100,128],ScalarList=\"[1]\",Scalar=\"False\",) "
      "aten::mean";
  // Saves the lookup, half of its node, and the node of the reduction.
  Says(Of({look_up, mean}), "mean or sum of embeddings", 2.5);
  EXPECT_TRUE(
      IsClean(Of({look_up, mean, Alone("relu", "128,100,128")}), kRule));
}

}  // namespace
}  // namespace stepscope::written_functions_test
