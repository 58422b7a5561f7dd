#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::selections_test {
namespace {

constexpr const char* kRule = "late-selection";
const std::string kWhole = "float[4096,128]";

// Steps of 10 ms. The first `with_lines` steps run each of `lines` as an op of
// 1 ms. A product fills the rest.
Report Of(const std::vector<std::string>& lines, int steps = 4,
          int with_lines = 4) {
  CpuText text;
  for (int i = 0; i < steps; ++i) {
    int64_t rest = 10'000;
    for (const std::string& line : lines) {
      if (i >= with_lines) break;
      text.Op(line, 1'000);
      rest -= 1'000;
    }
    text.Op("inputs=(float[64,64],float[64,64]) aten::mm", rest);
    text.EndStep();
  }
  return text.Analyzed();
}

std::string Slice(const std::string& of, int dim, int begin, int end) {
  return "inputs=(" + of + ",Scalar=\"" + std::to_string(dim) + "\",Scalar=\"" +
         std::to_string(begin) + "\",Scalar=\"" + std::to_string(end) +
         "\",Scalar=\"1\") aten::slice";
}

std::string On(const std::string& op, const std::string& of = kWhole) {
  return "inputs=(" + of + ") " + op;
}

const std::string kIndex = "inputs=(float[5000,128],-) aten::index";

TEST(LateSelectionTest, AdvisesToChooseRowsFirst) {
  const Report report = Of({kIndex, Slice(kWhole, 0, 512, 1024)});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 0.875, 0.01);
  EXPECT_NE(finding->evidence.find("[4096, 128] (2.1 MB), and only 12 % of it"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("x[order[begin:end]]"), std::string::npos);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
}

// Taking half of each of two shuffled arrays is still taking half of the rows.
TEST(LateSelectionTest, TreatsArraysInTheSameOrderAsOne) {
  EXPECT_TRUE(IsClean(Of({kIndex, kIndex, Slice(kWhole, 0, 0, 2048),
                          Slice(kWhole, 0, 0, 2048)}),
                      kRule));
  EXPECT_FALSE(IsClean(Of({kIndex, kIndex, Slice(kWhole, 0, 0, 2047),
                           Slice(kWhole, 0, 0, 2047)}),
                       kRule));
}

TEST(LateSelectionTest, FindsAHeadOfWhichOnlyTheLastPositionIsUsed) {
  const std::string head =
      "inputs=(float[16,64,32],float[1000,32],float[1000]) aten::linear";
  const Report report = Of(
      {head,
       "inputs=(float[16,64,1000],Scalar=\"1\",Scalar=\"-1\") aten::select"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 63.0 / 64, 0.01);
  EXPECT_NE(finding->fix_python.find("head(h[:, -1])"), std::string::npos);
}

TEST(LateSelectionTest, FindsAFewScoresGatheredFromAll) {
  const std::string scores = "inputs=(float[256,64],float[64,20000]) aten::mm";
  const auto gathered = [&](const std::string& index) {
    return "inputs=(float[256,20000],Scalar=\"1\",long int[" + index +
           "],Scalar=\"False\") aten::gather";
  };
  const Report report = Of({scores, gathered("256,20")});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // Gathering a row of weights for a single score costs as much as computing 64
  // scores.
  EXPECT_NEAR(finding->gain.expected_ms, 1 - 64 * 0.001, 0.01);
  EXPECT_NE(finding->fix_python.find("weight[index]"), std::string::npos)
      << finding->fix_python;
  EXPECT_FALSE(IsClean(Of({scores, gathered("256,150")}), kRule));
  EXPECT_TRUE(IsClean(Of({scores, gathered("256,160")}), kRule));
  // Each query has its own keys, as with relative positions.
  EXPECT_TRUE(
      IsClean(Of({"inputs=(float[8,256,64],float[8,64,20000]) aten::bmm",
                  "inputs=(float[8,256,20000],Scalar=\"-1\",long "
                  "int[8,256,20],Scalar=\"False\") aten::gather"}),
              kRule));
  // The loss normalises over all scores.
  const std::string all =
      "inputs=(float[256,20000],Scalar=\"1\") aten::log_softmax";
  EXPECT_TRUE(IsClean(Of({scores, all, gathered("256,20")}), kRule));
  EXPECT_TRUE(IsClean(Of({scores, gathered("256,20"),
                          On("aten::logsumexp", "float[256,20000]")}),
                      kRule));
}

TEST(LateSelectionTest, FindsAConversionBeforeACrop) {
  const std::string pixels = "c10::Byte[8,3,256,256]";
  const std::string image = "float[8,3,256,256]";
  const std::vector<std::string> crop = {Slice(image, 2, 16, 80),
                                         Slice("float[8,3,64,256]", 3, 0, 64)};
  const auto with = [&](std::vector<std::string> made) {
    made.insert(made.end(), crop.begin(), crop.end());
    return Of(made);
  };
  const Report report = with({On("aten::div", image), On("aten::sub", image)});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2 * 15.0 / 16, 0.01);
  // Hint only: the next step may add to the tensor that this step made.
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  // Only the op after the mean of all pixels is saved.
  const Report mean = with({On("aten::div", image), On("aten::mean", image),
                            On("aten::sub", image)});
  ASSERT_NE(Find(mean, kRule), nullptr);
  EXPECT_NEAR(Find(mean, kRule)->gain.expected_ms, 15.0 / 16, 0.01);
  EXPECT_TRUE(
      IsClean(with({On("aten::div", image), On("aten::mean", image)}), kRule));
  // An op in place changes a tensor that outlives the step.
  EXPECT_TRUE(IsClean(with({On("aten::div_", image)}), kRule));
}

TEST(LateSelectionTest, AdvisesTopkIfOnlyTheEndsOfASortAreUsed) {
  const auto sorted = [](int begin, int end) {
    return Of(
        {"inputs=(float[512,1024],Scalar=\"-1\",Scalar=\"False\") "
         "aten::argsort",
         Slice("long int[512,1024]", 1, begin, end)});
  };
  const Report report = sorted(0, 8);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("torch.topk"), std::string::npos);
  EXPECT_FALSE(IsClean(sorted(1016, 1024), kRule));
  EXPECT_TRUE(IsClean(sorted(500, 508), kRule));
}

TEST(LateSelectionTest, FindsABatchTakenFromAShuffleOfAllRows) {
  const std::string shuffle =
      "inputs=(Scalar=\"500000\",Scalar=\"4\") aten::randperm";
  const Report report = Of({shuffle, Slice("long int[500000]", 0, 0, 256)});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("torch.randint(n, (k,))"),
            std::string::npos)
      << finding->fix_python;
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.01);
  // An epoch of a single step uses all of the shuffle.
  EXPECT_TRUE(IsClean(Of({shuffle, Slice("long int[500000]", 0, 0, 250000),
                          Slice("long int[500000]", 0, 250000, 500000)}),
                      kRule));
}

TEST(LateSelectionTest, CountsOnlyOpsThatCommuteWithTheSelection) {
  const auto softmax = [](int dim) {
    return Of({"inputs=(float[4096,128],Scalar=\"1\") aten::softmax",
               Slice(kWhole, dim, 0, 16)});
  };
  EXPECT_FALSE(IsClean(softmax(0), kRule));
  EXPECT_TRUE(IsClean(softmax(1), kRule));
  const auto norm = [](int dim) {
    return Of({"inputs=(float[4096,128],ScalarList=\"[128]\") aten::layer_norm",
               Slice(kWhole, dim, 0, 16)});
  };
  EXPECT_FALSE(IsClean(norm(0), kRule));
  EXPECT_TRUE(IsClean(norm(1), kRule));
  EXPECT_TRUE(
      IsClean(Of({On("aten::batch_norm"), Slice(kWhole, 0, 0, 16)}), kRule));
}

TEST(LateSelectionTest, StaysSilentIfAllOfTheTensorIsUsed) {
  const std::string part = Slice(kWhole, 0, 0, 512);
  EXPECT_TRUE(IsClean(Of({kIndex, part, On("aten::sum")}), kRule));
  EXPECT_TRUE(IsClean(Of({kIndex, On("aten::view"), part}), kRule));
  EXPECT_TRUE(IsClean(Of({kIndex, part, On("aten::relu")}), kRule));
  // Slices into queries, keys and values.
  const std::string qkv =
      "inputs=(float[4096,64],float[192,64],float[192]) aten::linear";
  const std::string made = "float[4096,192]";
  EXPECT_TRUE(IsClean(Of({qkv, Slice(made, 1, 0, 64), Slice(made, 1, 64, 128),
                          Slice(made, 1, 128, 192)}),
                      kRule));
  EXPECT_FALSE(IsClean(Of({qkv, Slice(made, 1, 0, 64)}), kRule));
}

// Ops that lead to the tensor are saved, too, back to a sum over rows.
TEST(LateSelectionTest, SelectsBeforeTheFirstLayer) {
  const auto with = [](const std::string& first) {
    return Of({first, "inputs=(float[4096,64],float[256,64]) aten::linear",
               On("aten::relu", "float[4096,256]"),
               "inputs=(float[4096,256],float[128,256]) aten::linear",
               Slice(kWhole, 0, 0, 1024)});
  };
  const auto gain = [](const Report& report) {
    const Finding* finding = Find(report, kRule);
    return finding == nullptr ? 0 : finding->gain.expected_ms;
  };
  EXPECT_NEAR(gain(with(On("aten::sum", "float[4096,64]"))), 3 * 0.75, 0.01);
  EXPECT_NEAR(gain(with(On("aten::abs", "float[4096,64]"))), 4 * 0.75, 0.01);
}

// The size of the gradient shows how many rows x[index] takes.
TEST(LateSelectionTest, ReadsTheNumberOfTakenRowsFromTheGradient) {
  const auto taken = [](const std::string& rows) {
    CpuText text;
    for (int i = 0; i < 4; ++i) {
      const std::string sequence = "sequence=" + std::to_string(i);
      text.Op("inputs=(float[4096,64],float[128,64]) aten::linear", 4'000);
      text.Op(sequence + " inputs=(" + kWhole + ",-) aten::index", 1'000);
      text.Op("aten::sort", 4'000);
      text.Nested("kind=backward " + sequence + " inputs=(float[" + rows +
                      ",128]) IndexBackward0",
                  1'000, "aten::index_put_", 990);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report report = taken("1024");
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 5 * 0.75, 0.01);
  EXPECT_TRUE(IsClean(taken("2048"), kRule));
  EXPECT_TRUE(IsClean(taken("9000"), kRule));
}

// The program gathers rows of the tensor. The recording does not show how many.
TEST(LateSelectionTest, IgnoresTensorsOfWhichRowsAreGathered) {
  const std::string part = Slice(kWhole, 0, 0, 512);
  const std::string rows = "inputs=(" + kWhole + ",-) aten::index";
  EXPECT_TRUE(IsClean(Of({On("aten::exp"), part, rows}), kRule));
  EXPECT_TRUE(IsClean(Of({On("aten::exp"), rows, part}), kRule));
  EXPECT_FALSE(IsClean(Of({On("aten::exp"), kIndex, part}), kRule));
  // The op between may have made the tensor of which the part is taken.
  EXPECT_TRUE(IsClean(Of({kIndex, "aten::bernoulli", part}), kRule));
}

TEST(LateSelectionTest, NeedsLessThanHalfToBeUsed) {
  EXPECT_TRUE(IsClean(Of({kIndex, Slice(kWhole, 0, 0, 2048)}), kRule));
  EXPECT_FALSE(IsClean(Of({kIndex, Slice(kWhole, 0, 0, 2047)}), kRule));
}

TEST(LateSelectionTest, IgnoresSmallTensors) {
  const auto with = [](const std::string& rows) {
    return Of({kIndex, Slice("float[" + rows + ",128]", 0, 0, 16)});
  };
  EXPECT_TRUE(IsClean(with("2047"), kRule));
  EXPECT_FALSE(IsClean(with("2048"), kRule));
}

TEST(LateSelectionTest, NeedsTwoThirdsOfTheSteps) {
  const std::vector<std::string> lines = {kIndex, Slice(kWhole, 0, 0, 16)};
  EXPECT_TRUE(IsClean(Of(lines, 6, 3), kRule));
  EXPECT_FALSE(IsClean(Of(lines, 6, 4), kRule));
}

}  // namespace
}  // namespace stepscope::selections_test
