#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::repeated_rows_test {
namespace {

constexpr const char* kRule = "repeated-rows";
constexpr const char* kLeft =
    "inputs=(float[16,64,32],Scalar=\"64\",Scalar=\"1\") "
    "aten::repeat_interleave";
constexpr const char* kRight =
    "inputs=(float[16,64,32],ScalarList=\"[1, 64, 1]\") aten::repeat";
constexpr const char* kCat =
    "inputs=((float[16,4096,32],float[16,4096,32]),Scalar=\"2\") aten::cat";
constexpr const char* kLayer =
    "inputs=(float[16,4096,64],float[8,64]) aten::linear";

// Steps of 10 ms. Each op takes 1 ms, and so does its node.
Report Of(const std::vector<std::string>& ops) {
  CpuText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    int64_t rest = 10'000;
    const int first = sequence;
    for (const std::string& op : ops) {
      text.Op("sequence=" + std::to_string(sequence++) + " " + op, 1'000);
      rest -= 2'000;
    }
    for (int node = sequence; node-- > first;) {
      text.Nested(
          "kind=backward sequence=" + std::to_string(node) + " XBackward0",
          1'000, "aten::mul", 990);
    }
    text.Op("aten::sort", rest);
    text.EndStep();
  }
  return text.Analyzed();
}

// Pairs the features of both end nodes for each edge of a graph, as in pyGAT.
TEST(RepeatedRowsTest, AdvisesToApplyTheLayerFirst) {
  const Report report = Of({kLeft, kRight, kCat, kLayer});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // The layer still handles one row in 64. Nothing is copied.
  EXPECT_NEAR(finding->gain.expected_ms, 6 + 2 * (1 - 1 / 64.0), 0.05);
  EXPECT_NE(finding->evidence.find("65536 rows of width 64, of which all "
                                   "columns are copies of at most 1024 rows"),
            std::string::npos)
      << finding->evidence;
}

// A decoder's state repeated beside the encoder's outputs.
TEST(RepeatedRowsTest, FindsARepeatedPartOfTheColumns) {
  const std::string state =
      "inputs=(float[16,1,32],ScalarList=\"[-1, 4096, -1]\") aten::expand";
  const Report report = Of({state, kCat, kLayer});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("32 columns are copies of at most 16 rows"),
            std::string::npos)
      << finding->evidence;
  // Saving a fifth of the columns is not worth a change.
  const auto narrow = [&](const std::string& width) {
    return Of({"inputs=(float[16,1," + width +
                   "],ScalarList=\"[-1, 4096, -1]\") aten::expand",
               "inputs=((float[16,4096," + width +
                   "],float[16,4096,32]),Scalar=\"2\") aten::cat",
               "inputs=(float[16,4096," +
                   std::to_string(std::stoi(width) + 32) +
                   "],float[8,64]) aten::linear"});
  };
  EXPECT_TRUE(IsClean(narrow("8"), kRule));
  EXPECT_FALSE(IsClean(narrow("11"), kRule));
}

TEST(RepeatedRowsTest, FindsNodesGatheredForEachEdge) {
  const auto gathered = [](const std::string& edges) {
    return Of({"inputs=(float[1000,32],Scalar=\"0\",long int[" + edges +
                   "]) aten::index_select",
               "inputs=(float[" + edges + ",32],float[8,32]) aten::linear"});
  };
  EXPECT_FALSE(IsClean(gathered("4000"), kRule));
  EXPECT_TRUE(IsClean(gathered("3999"), kRule));
}

TEST(RepeatedRowsTest, IgnoresRowsChangedBeforeTheLayer) {
  EXPECT_TRUE(IsClean(Of({kLeft, kRight, kCat,
                          "inputs=(float[16,4096,64]) aten::relu", kLayer}),
                      kRule));
  // The layer may read other rows of the same size.
  EXPECT_TRUE(IsClean(
      Of({kLeft, kRight, kCat, "inputs=(float[9]) aten::exp", kLayer}), kRule));
  EXPECT_TRUE(IsClean(
      Of({"inputs=(float[1,4096,64],ScalarList=\"[16, -1, -1]\") aten::expand",
          kLayer}),
      kRule));
  // The rows are joined one below the other, for example a class token and
  // patches.
  EXPECT_TRUE(IsClean(
      Of({"inputs=(float[1,1,64],ScalarList=\"[16, -1, -1]\") aten::expand",
          "inputs=((float[16,1,64],float[16,4095,64]),Scalar=\"1\") aten::cat",
          kLayer}),
      kRule));
}

}  // namespace
}  // namespace stepscope::repeated_rows_test
