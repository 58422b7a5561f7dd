#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::padding_test {
namespace {

constexpr const char* kRule = "padded-to-maximum";

struct Batches {
  std::vector<int> lengths = {60, 100, 80, 80};  // one for each step
  int length = 200;
  bool rounds = false;  // to a multiple of 64, in place of `length`
  bool left = false;    // pads in front as well
  std::string blank;    // an op that makes zeros, into which two samples of
                        // the length, and of half of it, are copied
};

// Steps of 10 ms; a linear layer and attention take 2 ms each, with nodes of
// 1 ms, and work on the full length.
Report Of(const Batches& how) {
  CpuText text;
  int sequence = 0;
  for (int length : how.lengths) {
    const int full = how.rounds ? (length + 63) / 64 * 64 : how.length;
    const std::string to = std::to_string(full);
    if (!how.blank.empty()) {
      text.Op(how.blank, 20);
      for (int part : {length / 2, length}) {
        const std::string size = std::to_string(part);
        text.Op("inputs=(long int[16," + to +
                    "],Scalar=\"0\",Scalar=\"3\") aten::select",
                10);
        text.Op("inputs=(long int[" + to +
                    "],Scalar=\"0\",Scalar=\"0\",Scalar=\"" + size +
                    "\",Scalar=\"1\") aten::slice",
                10);
        text.Op("inputs=(long int[" + size + "],long int[" + size +
                    "]) aten::copy_",
                20);
      }
    } else {
      text.Op("inputs=(long int[16," + std::to_string(length) +
                  "],ScalarList=\"[" + std::string(how.left ? "1" : "0") +
                  ", " + std::to_string(full - length - how.left) +
                  "]\") aten::pad",
              100);
    }
    const std::string first = "sequence=" + std::to_string(sequence++);
    const std::string second = "sequence=" + std::to_string(sequence++);
    text.Op(
        first + " inputs=(float[16," + to + ",64],float[48,64]) aten::linear",
        2'000);
    text.Op(second + " inputs=(float[16,4," + to + ",16],float[16,4," + to +
                ",16]) aten::scaled_dot_product_attention",
            2'000);
    for (const std::string& one : {second, first}) {
      text.Nested("kind=backward " + one + " SomeBackward0", 1'000, "aten::mm",
                  990);
    }
    text.Op("inputs=(float[16,64]) aten::sort", 3'900);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PaddedToMaximumTest, PadsToTheLongestOfTheBatch) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Attention shrinks by the square.
  const double squares = (0.09 + 0.25 + 0.16 + 0.16) / 4;
  EXPECT_NEAR(finding->gain.expected_ms, 3.1 * 0.6 + 3 * (1 - squares), 0.01);
  EXPECT_NE(finding->evidence.find("to a length of 200, and the longest sample "
                                   "of a batch has 60 to 100, 40 % of it"),
            std::string::npos)
      << finding->evidence;
}

TEST(PaddedToMaximumTest, CopiesIntoZeros) {
  const auto with = [](const std::string& size) {
    return Of({.blank = "inputs=(ScalarList=\"" + size + "\") aten::zeros"});
  };
  EXPECT_FALSE(IsClean(with("[16, 200]"), kRule));
  EXPECT_TRUE(IsClean(with("[16, 300]"), kRule));
}

TEST(PaddedToMaximumTest, TheLengthIsNearlyReached) {
  EXPECT_TRUE(IsClean(Of({.lengths = {158, 160, 160, 163}}), kRule));
  EXPECT_FALSE(IsClean(Of({.lengths = {158, 160, 160, 162}}), kRule));
}

TEST(PaddedToMaximumTest, EqualLengthsAreAChoice) {
  EXPECT_TRUE(IsClean(Of({.lengths = {80, 80, 80, 80}}), kRule));
}

TEST(PaddedToMaximumTest, RoundedUpLengths) {
  EXPECT_TRUE(
      IsClean(Of({.lengths = {20, 70, 180, 150, 40}, .rounds = true}), kRule));
}

TEST(PaddedToMaximumTest, BothEndsAreABorder) {
  EXPECT_TRUE(IsClean(Of({.left = true}), kRule));
}

}  // namespace
}  // namespace stepscope::padding_test
