#include "rule_testing.h"
#include "support/trace_text.h"

namespace stepscope {
namespace {

struct Options {
  bool numbers_grow = true;
  bool matmul = true;
  bool backward_follows = true;
  int validation_ops = 30;
  bool memory = false;
};

// Two training steps with a validation pass in the second one's front.
Report WithValidation(const Options& options) {
  std::string text = options.memory ? "watch memory\n" : "";
  int64_t now = 0;
  int sequence = 0;
  const auto op = [&](const std::string& rest) {
    text += "op " + std::to_string(now) + ".." + std::to_string(now + 9'000) +
            " thread=0 " + rest + "\n";
    now += 10'000;
  };
  const auto forward = [&](int ops, bool grows) {
    const int first = sequence;
    for (int i = 0; i < ops; ++i) {
      op("sequence=" + std::to_string(sequence) +
         (i == 0 && options.matmul ? " aten::conv2d" : " aten::relu"));
      if (grows) ++sequence;
    }
    return first;
  };
  const auto backward = [&](int first) {
    for (int s = sequence; s-- > first;) {
      op("kind=backward sequence=" + std::to_string(s) + " XBackward0");
    }
  };
  for (int step = 0; step < 2; ++step) {
    const int64_t begin = now;
    if (step == 1) {
      if (options.memory) {
        text += "allocation " + std::to_string(now + 5) +
                " thread=0 address=64 bytes=50000000\n";
      }
      forward(options.validation_ops, options.numbers_grow);
      if (options.memory) {
        text += "allocation " + std::to_string(now) +
                " thread=0 address=64 bytes=-50000000\n";
      }
    }
    if (step == 0 || options.backward_follows) backward(forward(30, true));
    text += "step " + std::to_string(begin) + ".." + std::to_string(now) +
            " thread=0 number=" + std::to_string(step) + "\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(GradInValidationTest, FindsAForwardPassNobodyDifferentiates) {
  const Report report = WithValidation({});
  const Finding* finding = Find(report, "grad-in-validation");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("30 autograd nodes"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_cpp.find("InferenceMode"), std::string::npos);
}

TEST(GradInValidationTest, NamesTheMemoryItHolds) {
  const Report report = WithValidation({.memory = true});
  ASSERT_NE(Find(report, "grad-in-validation"), nullptr);
  EXPECT_NE(Find(report, "grad-in-validation")->evidence.find("50.0 MB"),
            std::string::npos)
      << Find(report, "grad-in-validation")->evidence;
}

TEST(GradInValidationTest, StaysSilentUnderNoGrad) {
  EXPECT_TRUE(
      IsClean(WithValidation({.numbers_grow = false}), "grad-in-validation"));
}

TEST(GradInValidationTest, IgnoresWhatTheEndOfTheWindowCutOff) {
  EXPECT_TRUE(IsClean(WithValidation({.backward_follows = false}),
                      "grad-in-validation"));
}

TEST(GradInValidationTest, IgnoresStretchesWithoutAMatrixProduct) {
  EXPECT_TRUE(IsClean(WithValidation({.matmul = false}), "grad-in-validation"));
}

TEST(GradInValidationTest, IgnoresAFewStrayOps) {
  EXPECT_TRUE(
      IsClean(WithValidation({.validation_ops = 9}), "grad-in-validation"));
  EXPECT_FALSE(
      IsClean(WithValidation({.validation_ops = 12}), "grad-in-validation"));
}

}  // namespace
}  // namespace stepscope
