#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::padding_test {
namespace {

constexpr const char* kRule = "padded-to-maximum";

struct Batches {
  std::vector<int> lengths = {60, 100, 80, 80};  // one per step
  int length = 200;
  bool rounds = false;  // pads to a multiple of 64, not to `length`
  bool left = false;    // pads at the start as well
  // An op that makes zeros, into which the program copies two samples: one of
  // the step's length and one of half of it.
  std::string blank;
};

// Steps of 10 ms. A linear layer and attention work on the full length; each
// takes 2 ms, and its node 1 ms.
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

TEST(PaddedToMaximumTest, AdvisesToPadToTheLongestOfTheBatch) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // The time of attention shrinks with the square of the length.
  const double squares = (0.09 + 0.25 + 0.16 + 0.16) / 4;
  EXPECT_NEAR(finding->gain.expected_ms, 3.1 * 0.6 + 3 * (1 - squares), 0.01);
  EXPECT_NE(finding->evidence.find("to a length of 200, and the longest sample "
                                   "of a batch has 60 to 100, 40 % of it"),
            std::string::npos)
      << finding->evidence;
}

TEST(PaddedToMaximumTest, SeesCopiesIntoZeros) {
  const auto with = [](const std::string& size) {
    return Of({.blank = "inputs=(ScalarList=\"" + size + "\") aten::zeros"});
  };
  EXPECT_FALSE(IsClean(with("[16, 200]"), kRule));
  EXPECT_TRUE(IsClean(with("[16, 300]"), kRule));
}

TEST(PaddedToMaximumTest, StaysSilentIfTheLengthIsNearlyReached) {
  EXPECT_TRUE(IsClean(Of({.lengths = {158, 160, 160, 163}}), kRule));
  EXPECT_FALSE(IsClean(Of({.lengths = {158, 160, 160, 162}}), kRule));
}

TEST(PaddedToMaximumTest, StaysSilentOnEqualLengths) {
  EXPECT_TRUE(IsClean(Of({.lengths = {80, 80, 80, 80}}), kRule));
}

TEST(PaddedToMaximumTest, StaysSilentOnRoundedUpLengths) {
  EXPECT_TRUE(
      IsClean(Of({.lengths = {20, 70, 180, 150, 40}, .rounds = true}), kRule));
}

TEST(PaddedToMaximumTest, StaysSilentOnPaddingAtBothEnds) {
  EXPECT_TRUE(IsClean(Of({.left = true}), kRule));
}

// Steps of 10 ms, in which a recurrent layer over 160 frames takes 4 ms. The
// loss gets the lengths of two samples.
Report Speech(const std::vector<std::string>& lengths) {
  CpuText text;
  for (const std::string& both : lengths) {
    text.Op("inputs=(float[2,160,40]) aten::gru", 4'000);
    text.Op("inputs=(float[160,2,30]) aten::sort", 1'000);
    text.Nested(
        "inputs=(float[160,2,30],long int[2,12],long int[2],long int[2]) "
        "aten::ctc_loss",
        1'000,
        "inputs=(float[160,2,30],long int[2,12],ScalarList=\"" + both +
            "\",ScalarList=\"[12, 12]\") aten::_ctc_loss",
        990);
    text.Op("inputs=(float[64,64]) aten::sort", 4'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PaddedToMaximumTest, ReadsTheLengthsGivenToTheLoss) {
  const Report report =
      Speech({"[40, 20]", "[80, 30]", "[60, 50]", "[50, 60]"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "aten::ctc_loss");
  EXPECT_NEAR(finding->gain.expected_ms, 6 * (1 - 60.0 / 160), 0.01);
  EXPECT_NE(finding->evidence.find("the longest one of a batch has 40 to 80, "
                                   "38 % of it on average"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(Speech({"[160, 20]", "[150, 30]", "[140, 50]"}), kRule));
}

// Masked attention over batches of these lengths.
Report Masked(const std::vector<int>& lengths, const std::string& samples) {
  CpuText text;
  for (int length : lengths) {
    const std::string size = std::to_string(length);
    const std::string heads = "float[16,4," + size + ",16]";
    text.Op("inputs=(" + heads + "," + heads + "," + heads + ",float[" +
                samples + ",1,1," + size +
                "]) aten::scaled_dot_product_attention",
            2'000);
    text.Op("inputs=(float[64,64]) aten::sort", 2'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PaddedToMaximumTest, HintsAtMasksOfOneLength) {
  const Report report = Masked({128, 128, 128, 128}, "16");
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("all recorded batches have a length of 128"),
            std::string::npos)
      << finding->evidence;
  // Batches padded to their longest sample, a causal mask (it has no samples),
  // and too few steps.
  EXPECT_TRUE(IsClean(Masked({128, 120, 128, 128}, "16"), kRule));
  EXPECT_TRUE(IsClean(Masked({128, 128, 128, 128}, "1"), kRule));
  EXPECT_TRUE(IsClean(Masked({128, 128, 128}, "16"), kRule));
}

}  // namespace
}  // namespace stepscope::padding_test
