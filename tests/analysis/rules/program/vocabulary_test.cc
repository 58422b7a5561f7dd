#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::vocabulary_test {
namespace {

// A loss over 100 tokens: softmax forward and backward, and `copies` casts of
// the scores of `copied` tokens. Each op takes 1 ms.
Report Loss(int words, int copies = 0, bool sizes = true, int copied = 100) {
  const std::string copy =
      "float[" + std::to_string(copied) + "," + std::to_string(words) + "]";
  const std::string dims = "float[100," + std::to_string(words) + "]";
  const auto in = [&](const std::string& tensors) {
    return sizes ? "inputs=(" + tensors + ") " : std::string();
  };
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    text.Op(in("float[100,64],float[64," + std::to_string(words) + "]") +
                "aten::mm",
            5'000);
    for (int k = 0; k < copies; ++k) {
      text.Op(in(copy + "," + copy) + "aten::copy_", 1'000);
    }
    text.Op(in(dims) + "aten::_log_softmax", 1'000);
    text.Op(in(dims + "," + dims) + "aten::_log_softmax_backward_data", 1'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(LargeVocabularyLossTest, IsAtMostTheExtraMemoryTraffic) {
  const Report report = Loss(32'000, /*copies=*/1);
  const Finding* finding = Find(report, "large-vocabulary-loss");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // The ops read or write the scores 6 times (the copy counts 3 times, as it
  // names two tensors and writes one). 2 times would do, so two thirds of 3 ms
  // are saved.
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_NE(finding->evidence.find("100 tokens x 32000 words, 12.8 MB"),
            std::string::npos)
      << finding->evidence;
}

// With labels shifted by one, each sequence's last token is left out, so the
// copy may be larger than the loss.
TEST(LargeVocabularyLossTest, CountsCopiesBeforeTheShift) {
  const auto gain = [](int copied) {
    return Find(Loss(32'000, 1, true, copied), "large-vocabulary-loss")
        ->gain.expected_ms;
  };
  EXPECT_GT(gain(104), gain(111) + 0.5);
}

TEST(LargeVocabularyLossTest, StaysSilentOnSmallerVocabularies) {
  EXPECT_TRUE(IsClean(Loss(31'999), "large-vocabulary-loss"));
}

// Contrastive scores: a query times a queue, joined with the score of the
// query's own key.
TEST(LargeVocabularyLossTest, IgnoresContrastiveScoresOfAQueue) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    text.Op("inputs=(float[32,128],float[128,32768]) aten::mm", 5'000);
    text.Op("inputs=((float[32,1],float[32,32768]),Scalar=\"1\") aten::cat",
            1'000);
    text.Op("inputs=(float[32,32769]) aten::_log_softmax", 5'000);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), "large-vocabulary-loss"));
}

TEST(LargeVocabularyLossTest, NeedsSizes) {
  EXPECT_FALSE(
      WhySkipped(Loss(32'000, 1, /*sizes=*/false), "large-vocabulary-loss")
          .empty());
}

}  // namespace
}  // namespace stepscope::vocabulary_test
