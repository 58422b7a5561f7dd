#include <string>
#include <vector>

#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::labels_test {
namespace {

constexpr const char* kRule = "ignored-labels";

// Returns the line of an op with its arguments, for example of Call("aten::t",
// "float[2,4]").
std::string Call(const std::string& name, const std::string& inputs) {
  return "inputs=(" + inputs + ") " + name;
}
std::string Number(const std::string& value) {
  return "Scalar=\"" + value + "\"";
}

std::vector<std::string> Masked(const std::string& value) {
  return {
      Call("aten::bitwise_not", "bool[4,64]"),
      Call("aten::masked_fill", "long int[4,64],bool[4,64]," + Number(value))};
}
// Returns the ops of labels[:, from:to] = value.
std::vector<std::string> Filled(const std::string& from, const std::string& to,
                                const std::string& value) {
  const int count = std::stoi(to) - std::stoi(from);
  return {
      Call("aten::slice", "long int[4,64]," + Number("1") + "," + Number(from) +
                              "," + Number(to) + "," + Number("1")),
      Call("aten::fill_",
           "long int[4," + std::to_string(count) + "]," + value)};
}
const std::string kUnknown = "long int[]";  // a tensor with one element

struct Training {
  std::vector<std::string> first = {};   // ops before the model
  std::vector<std::string> behind = {};  // ops after the product
  std::string head =
      Call("aten::linear", "float[4,64,128],float[1000,128],float[1000]");
  std::string scores = "float[256,1000]";
  std::string labels = "long int[256]";
  std::string ignored = "-100";
  int head_us = 2'000;
  bool looks_up = true;  // looks up the model's input in a table
};

// Steps of 10 ms: the product that computes the scores takes 2 ms, softmax and
// loss take 1 ms, and their nodes take as long.
Report Of(const Training& how) {
  CpuText text;
  int sequence = 0;
  for (int i = 0; i < 4; ++i) {
    const std::string first = "sequence=" + std::to_string(sequence++) + " ";
    const std::string second = "sequence=" + std::to_string(sequence++) + " ";
    for (const std::string& one : how.first) text.Op(one, 1);
    if (how.looks_up) {
      text.Op(Call("aten::embedding", "float[1000,128],long int[4,64]"), 1);
    }
    text.Op(Call("aten::linear", "float[4,64,128],float[128,128]"), 3'000);
    text.Op(first + how.head, how.head_us);
    for (const std::string& one : how.behind) text.Op(one, 1);
    text.Nested(second + Call("aten::cross_entropy_loss",
                              how.scores + "," + how.labels),
                1'000,
                Call("aten::nll_loss_forward", how.scores + "," + how.labels +
                                                   ",," + Number("1") + "," +
                                                   Number(how.ignored)),
                10);
    text.Nested("kind=backward " + second + "LogSoftmaxBackward0", 1'000,
                "aten::_log_softmax_backward_data", 990);
    text.Nested("kind=backward " + first + "AddmmBackward0", how.head_us,
                "aten::mm", how.head_us - 10);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(IgnoredLabelsTest, FindsLabelsMaskedWithTheIgnoredNumber) {
  const Report report = Of({.first = Masked("-100")});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NEAR(finding->gain.expected_ms, 6, 0.01);
  EXPECT_NE(finding->evidence.find("sets labels under a mask to -100"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("Scores of 1000 classes are computed for "
                                   "all 256 labels"),
            std::string::npos)
      << finding->evidence;
}

TEST(IgnoredLabelsTest, IgnoresMasksWithAnotherNumber) {
  EXPECT_TRUE(IsClean(Of({.first = Masked("3")}), kRule));
  EXPECT_TRUE(IsClean(Of({.behind = Masked("-1")}), kRule));
  EXPECT_TRUE(Find(Of({.behind = Masked("-1"), .ignored = "-1"}), kRule) !=
              nullptr);
}

TEST(IgnoredLabelsTest, StaysSilentWithoutMaskedLabels) {
  EXPECT_TRUE(IsClean(Of({}), kRule));
  EXPECT_TRUE(
      IsClean(Of({.first = {Call("aten::masked_fill",
                                 "float[4,64],bool[4,64]," + Number("-100"))}}),
              kRule));
  EXPECT_TRUE(IsClean(
      Of({.first = {Call("aten::masked_fill",
                         "long int[4,60],bool[4,60]," + Number("-100"))}}),
      kRule));
}

// Before the model's lookup, the masked tensor may be the model's input.
TEST(IgnoredLabelsTest, CountsUnknownNumbersOnlyAfterLookups) {
  const std::vector<std::string> where = {
      Call("aten::where", "bool[4,64],long int[4,64],long int[]")};
  EXPECT_TRUE(IsClean(Of({.first = where}), kRule));
  EXPECT_FALSE(IsClean(Of({.first = where, .looks_up = false}), kRule));
  const Report report = Of({.behind = where});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("a number that was not recorded"),
            std::string::npos)
      << finding->evidence;
}

TEST(IgnoredLabelsTest, SeesWhereWithANumber) {
  const Report report =
      Of({.first = {Call("aten::where",
                         "bool[4,64],long int[4,64]," + Number("-100"))}});
  ASSERT_NE(Find(report, kRule), nullptr);
  EXPECT_TRUE(IsClean(
      Of({.first = {Call("aten::where",
                         "bool[4,64]," + Number("5") + ",long int[4,64]")}}),
      kRule));
}

// 0 is also a token, so that a masked input looks the same.
TEST(IgnoredLabelsTest, CountsAnIgnoredTokenOnlyAfterLookups) {
  EXPECT_TRUE(IsClean(Of({.first = Masked("0"), .ignored = "0"}), kRule));
  const Report report = Of({.behind = Masked("0"), .ignored = "0"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
}

TEST(IgnoredLabelsTest, PaddingIsAHint) {
  const Report report =
      Of({.first = {Call("aten::eq", "long int[4,64]," + Number("0")),
                    Call("aten::masked_fill",
                         "long int[4,64],bool[4,64]," + Number("-100"))}});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("as for padding"), std::string::npos)
      << finding->evidence;
}

// labels[mask] = -100, and a loss over scores of [texts, classes, places].
TEST(IgnoredLabelsTest, SeesAnAssignmentUnderAMask) {
  for (const bool known : {true, false}) {
    CpuText text;
    for (int i = 0; i < 4; ++i) {
      text.Nested(Call("aten::index_put_", "long int[4,64],,long int[]"), 20,
                  known ? Call("aten::masked_fill_",
                               "long int[4,64],bool[4,64]," + Number("-100"))
                        : Call("aten::_index_put_impl_", "long int[4,64]"),
                  10);
      text.Op(Call("aten::linear", "float[4,64,128],float[1000,128]"), 2'000);
      text.Op(Call("aten::nll_loss2d_forward",
                   "float[4,1000,1,64],long int[4,1,64],," + Number("1") + "," +
                       Number("-100")),
              1'000);
      text.EndStep();
    }
    const Report report = text.Analyzed();
    EXPECT_EQ(Find(report, kRule) != nullptr, known);
  }
}

// A language model: each text's last token has no label.
const Training kShifted = {.scores = "float[252,1000]",
                           .labels = "long int[252]"};

TEST(IgnoredLabelsTest, PredictsTheShareOfAPrompt) {
  Training how = kShifted;
  how.first = Filled("0", "32", Number("-100"));
  const Report report = Of(how);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NEAR(finding->gain.expected_ms, 6 * 128.0 / 252, 0.01);
  EXPECT_NE(finding->evidence.find("about 51 % of the labels to -100"),
            std::string::npos)
      << finding->evidence;
}

// labels[i, :n] = -100 for each text i.
TEST(IgnoredLabelsTest, AddsUpThePromptsOfAllTexts) {
  Training how = kShifted;
  for (const char* length : {"20", "40"}) {
    const std::string rest =
        Number("0") + "," + Number("0") + "," + Number(length);
    how.first.push_back(Call(
        "aten::select", "long int[4,64]," + Number("0") + "," + Number("1")));
    how.first.push_back(Call("aten::slice", "long int[64]," + rest));
    how.first.push_back(Call("aten::fill_", "long int[" + std::string(length) +
                                                "]," + Number("-100")));
  }
  const Report report = Of(how);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 6 * 60.0 / 252, 0.01);
}

TEST(IgnoredLabelsTest, HintsAtAPromptFilledWithAnUnknownNumber) {
  Training how = kShifted;
  how.first = Filled("0", "48", kUnknown);
  const Report report = Of(how);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  // Fills the end of each row, or only its first token.
  how.first = Filled("16", "64", kUnknown);
  EXPECT_TRUE(IsClean(Of(how), kRule));
  how.first = Filled("0", "1", kUnknown);
  EXPECT_TRUE(IsClean(Of(how), kRule));
  how.first = Filled("0", "2", kUnknown);
  EXPECT_FALSE(IsClean(Of(how), kRule));
}

TEST(IgnoredLabelsTest, IgnoresSegmentNumbers) {
  Training how = kShifted;
  how.first = Filled("0", "48", kUnknown);
  how.first.insert(how.first.begin(),
                   Call("aten::zeros_like", "long int[4,64]"));
  EXPECT_TRUE(IsClean(Of(how), kRule));
}

TEST(IgnoredLabelsTest, SeesLabelsCreatedWithTheIgnoredNumber) {
  const std::vector<std::string> made = {
      Call("aten::full_like", "long int[4,64]," + Number("-100"))};
  EXPECT_NE(Find(Of({.first = made}), kRule), nullptr);
  EXPECT_TRUE(IsClean(
      Of({.behind = {Call("aten::full_like", "long int[4,64]," + Number("0"))},
          .ignored = "0"}),
      kRule));
}

// adjacency @ (x @ weight): each row of scores is a sum of other rows, so no
// row can be left out.
TEST(IgnoredLabelsTest, StaysSilentOnSumsOverNeighbours) {
  const std::vector<std::string> masks = {
      Call("aten::masked_fill", "long int[256],bool[256]," + Number("-100"))};
  Training how = {.first = masks,
                  .head = Call("aten::mm", "float[256,128],float[128,1000]")};
  EXPECT_NE(Find(Of(how), kRule), nullptr);
  how.behind = {Call("aten::mm", "float[256,256],float[256,1000]")};
  EXPECT_TRUE(IsClean(Of(how), kRule));
  how.behind = {Call("aten::index_add", "float[256,1000]," + Number("0") +
                                            ",long int[900],float[900,1000]")};
  EXPECT_TRUE(IsClean(Of(how), kRule));
}

TEST(IgnoredLabelsTest, StaysSilentWithoutAProduct) {
  EXPECT_TRUE(IsClean(
      Of({.first = Masked("-100"), .head = Call("aten::embedding", "")}),
      kRule));
}

// Needs a gain of 1 % of the step. A few masked classes are not worth a change.
TEST(IgnoredLabelsTest, NeedsOnePercentOfTheStep) {
  Training how = kShifted;
  how.first = Filled("0", "5", Number("-100"));
  EXPECT_NE(Find(Of(how), kRule), nullptr);
  how.first = Filled("0", "4", Number("-100"));
  how.head_us = 100;  // 6 % of 2.2 ms with the loss are masked: 0.14 ms
  EXPECT_NE(Find(Of(how), kRule), nullptr);
  how.first = Filled("0", "2", Number("-100"));
  EXPECT_TRUE(IsClean(Of(how), kRule));
}

TEST(IgnoredLabelsTest, CountsKernelTimeOnAGpu) {
  ComputeText text;
  for (int i = 0; i < 4; ++i) {
    text.Op("aten::linear", "(float[4,64,128],float[128,128])",
            {{"gemm", 3'000}});
    text.Op("aten::linear", "(float[4,64,128],float[1000,128])",
            {{"gemm", 4'000}});
    text.Op("aten::masked_fill", "(long int[4,64],bool[4,64],Scalar=\"-100\")",
            {{"fill", 1}});
    text.Op("aten::nll_loss_forward",
            "(float[256,1000],long int[256],,Scalar=\"1\",Scalar=\"-100\")",
            {{"loss", 1'000}});
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 5, 0.01);
  EXPECT_NE(finding->fix_python.find("waits for the GPU"), std::string::npos);
}

}  // namespace
}  // namespace stepscope::labels_test
