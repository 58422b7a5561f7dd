#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::lstm_layers_test {
namespace {

constexpr const char* kRule = "lstm-step-by-step";

struct Layer {
  std::string name = "aten::lstm";
  std::string takes = {};    // its inputs, if recorded
  std::string between = {};  // an op between two cells
  std::string inside = {};   // an op before them
  int cells = 10;
  int product_us = 500;
};

// Steps of 20 ms and a layer whose cells take 1 ms each, of which 500 us are a
// product unless said otherwise.
Report Running(const Layer& how) {
  std::string text;
  int64_t us = 1;
  const auto op = [&](int64_t begin_us, int64_t length_us,
                      const std::string& rest) {
    text += "op " + std::to_string(begin_us) + "000.." +
            std::to_string(begin_us + length_us) + "000 thread=0 " + rest +
            "\n";
  };
  for (int step = 0; step < 4; ++step) {
    const int64_t begin_us = us;
    op(us, how.cells * 1'000 + 100,
       (how.takes.empty() ? "" : "inputs=(" + how.takes + ") ") + how.name);
    us += 50;
    if (!how.inside.empty()) op(us, 10, how.inside);
    us += 20;
    for (int i = 0; i < how.cells; ++i) {
      op(us, how.product_us, "aten::addmm");
      op(us + how.product_us, 300, "aten::tanh");
      if (!how.between.empty()) op(us + how.product_us + 320, 50, how.between);
      us += 1'000;
    }
    us += 100;
    op(us, 20'000, "aten::sort");
    us += 20'000;
    text += "step " + std::to_string(begin_us) + "000.." + std::to_string(us) +
            "000 thread=0 number=" + std::to_string(step) + "\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(LstmStepByStepTest, LeavesHalfOfTheProductsIfTypesAreUnknown) {
  const Report report = Running({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 10.1 - 2.5, 0.1);
  EXPECT_NE(finding->evidence.find("the usual reason is double precision"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("model.float()"), std::string::npos);
}

TEST(LstmStepByStepTest, LeavesDoublesToFp64Compute) {
  EXPECT_TRUE(IsClean(Running({.takes = "double[64,96,12]"}), kRule));
  const Report report = Running({.takes = "float[64,96,12]"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 10.1 - 5, 0.1);
  EXPECT_NE(finding->fix_python.find("mkldnn"), std::string::npos);
}

TEST(LstmStepByStepTest, SaysWhatKeepsALayerFromOneDnn) {
  const Report packed = Running({.between = "aten::narrow"});
  ASSERT_NE(Find(packed, kRule), nullptr);
  EXPECT_NE(Find(packed, kRule)->fix_python.find("pack_padded_sequence"),
            std::string::npos);
  EXPECT_EQ(Find(packed, kRule)->confidence, Confidence::kHint);
  const Report projected = Running({.between = "aten::matmul"});
  ASSERT_NE(Find(projected, kRule), nullptr);
  EXPECT_NE(Find(projected, kRule)->fix_python.find("proj_size"),
            std::string::npos);
}

// With large products, oneDNN's op is not faster.
TEST(LstmStepByStepTest, NeedsTimeOutsideTheProductsInFloat32) {
  EXPECT_FALSE(
      IsClean(Running({.between = "aten::narrow", .product_us = 500}), kRule));
  EXPECT_TRUE(
      IsClean(Running({.between = "aten::narrow", .product_us = 520}), kRule));
  EXPECT_FALSE(IsClean(Running({.product_us = 520}), kRule));
}

// Padded products take as much longer as the batch has padding.
TEST(LstmStepByStepTest, CountsThePaddingOfPackedSequences) {
  const auto pack = [](int rows, int product_us) {
    return Running({.takes = "float[" + std::to_string(rows) +
                             ",12],long[10],(float[1,64,96],float[1,64,96])",
                    .between = "aten::narrow",
                    .product_us = product_us});
  };
  const Report report = pack(320, 200);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 10.1 - 2 * 2, 0.1);
  EXPECT_NEAR(Find(pack(640, 200), kRule)->gain.expected_ms, 10.1 - 2, 0.1);
  EXPECT_TRUE(IsClean(pack(320, 260), kRule));
  EXPECT_FALSE(IsClean(pack(640, 260), kRule));
}

TEST(LstmStepByStepTest, IgnoresOneDnnShortSequencesAndOtherCells) {
  EXPECT_TRUE(IsClean(Running({.inside = "aten::mkldnn_rnn_layer"}), kRule));
  EXPECT_TRUE(IsClean(Running({.cells = 7}), kRule));
  EXPECT_FALSE(IsClean(Running({.cells = 8}), kRule));
  EXPECT_TRUE(IsClean(Running({.name = "aten::gru"}), kRule));
}

}  // namespace
}  // namespace stepscope::lstm_layers_test
