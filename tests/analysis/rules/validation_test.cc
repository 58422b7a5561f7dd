#include "rule_testing.h"
#include "support/cpu_text.h"
#include "support/trace_text.h"

namespace stepscope::validation_test {
namespace {

struct Options {
  bool numbers_grow = true;
  bool matmul = true;
  bool backward_follows = true;
  int validation_ops = 30;
  bool memory = false;
  bool marked = false;     // marked as a validation phase
  bool recompute = false;  // the second pass runs inside a backward node
};

// Two training steps. A validation pass runs at the start of the second one.
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
      const int64_t from = now;
      forward(options.validation_ops, options.numbers_grow);
      if (options.recompute) {
        text += "op " + std::to_string(from) + ".." + std::to_string(now) +
                " thread=0 kind=backward CheckpointFunctionBackward\n";
      }
      if (options.marked) {
        text += "range " + std::to_string(from) + ".." + std::to_string(now) +
                " thread=0 kind=phase validate\n";
      }
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

TEST(GradInValidationTest, FindsAForwardPassWithoutABackwardPass) {
  const Report report = WithValidation({});
  const Finding* finding = Find(report, "grad-in-validation");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("30 nodes in "), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_cpp.find("InferenceMode"), std::string::npos);
}

// Inference steps of twelve ops of 500 us; each op has `fields`.
Report Inference(int steps, const std::string& fields,
                 const std::string& last = "") {
  CpuText text;
  int sequence = 0;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < 12; ++i) {
      text.Op(fields + (fields.empty() ? "" : std::to_string(sequence++)) +
                  " aten::addmm",
              500);
    }
    text.Begin();
    text.Pass(10);
    if (!last.empty()) text.EndRange(last);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GradInValidationTest, FindsAGraphInInference) {
  const Report report = Inference(4, "sequence=");
  const Finding* finding = Find(report, "grad-in-validation");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("No backward pass was recorded"),
            std::string::npos);
  EXPECT_NE(finding->evidence.find("48 nodes"), std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(Inference(4, ""), "grad-in-validation"));
}

TEST(GradInValidationTest, TheBackwardPassMayOnlyNotBeRecorded) {
  EXPECT_TRUE(IsClean(Inference(2, "sequence="), "grad-in-validation"));
  EXPECT_TRUE(IsClean(
      Inference(4, "sequence=", "kind=optimizer Optimizer.step#SGD.step"),
      "grad-in-validation"));
}

TEST(GradInValidationTest, ActivationCheckpointingIsNoValidation) {
  EXPECT_TRUE(
      IsClean(WithValidation({.recompute = true}), "grad-in-validation"));
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

// No backward pass can follow a phase marked as validation.
TEST(GradInValidationTest, AMarkedPassMayBeTheLastOfTheWindow) {
  EXPECT_FALSE(
      IsClean(WithValidation({.backward_follows = false, .marked = true}),
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

TEST(GradInValidationTest, AMarkedPassMayBeShort) {
  EXPECT_FALSE(IsClean(WithValidation({.validation_ops = 9, .marked = true}),
                       "grad-in-validation"));
}

struct Mode {
  std::string train = "True";
  std::string phase = "validate";  // "" for none
  std::string forward = "sequence=3";
  std::string validation = "";  // fields of the second pass's ops
  bool recompute = false;
  std::string running = "float[4]";  // running statistics; "" for none
};

// A training pass, a second forward pass, and a backward pass.
Report WithTwoPasses(const Mode& mode) {
  std::string text;
  const auto op = [&](int64_t at, const std::string& fields,
                      const std::string& name) {
    text += "op " + std::to_string(at) + ".." + std::to_string(at + 90'000) +
            " thread=0 " + fields + " " + name + "\n";
  };
  const std::string norm = " inputs=(float[8,4,2,2],float[4],float[4]," +
                           mode.running + "," + mode.running + ",Scalar=\"";
  op(0, mode.forward + norm + "True\")", "aten::batch_norm");
  op(100'000, "kind=backward sequence=3", "NativeBatchNormBackward0");
  if (mode.recompute) {
    text += "op 110000..120000 thread=0" + norm + "True\") aten::batch_norm\n";
  }
  op(200'000, mode.validation + norm + mode.train + "\")", "aten::batch_norm");
  op(300'000,
     mode.validation + " inputs=(float[8,4],Scalar=\"0.5\",Scalar=\"" +
         mode.train + "\")",
     "aten::dropout");
  if (!mode.phase.empty()) {
    text += "range 200000..400000 thread=0 kind=phase " + mode.phase + "\n";
  }
  text += "step 0..500000 thread=0 number=0\n";
  return Analyze(TraceFromText(text));
}

TEST(ValidationModeTest, FindsValidationInTrainingMode) {
  const Report report = WithTwoPasses({});
  const Finding* finding = Find(report, "validation-mode");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("1 batch norm and 1 dropout"),
            std::string::npos)
      << finding->evidence;
  // Fixing it saves no time, but the results are wrong.
  EXPECT_EQ(finding->status, FindingStatus::kWarning);
  EXPECT_NE(finding->fix_cpp.find("eval()"), std::string::npos);
}

// Example: a momentum encoder runs without gradients, in training mode, in
// every step.
TEST(ValidationModeTest, IgnoresATeacher) {
  const auto with = [](int steps, int teacher) {
    std::string text;
    const auto norm = [&](int64_t at, const std::string& fields) {
      text += "op " + std::to_string(at) + ".." + std::to_string(at + 90'000) +
              " thread=0 " + fields +
              " inputs=(float[8,4,2,2],float[4],float[4],float[4],float[4],"
              "Scalar=\"True\") aten::batch_norm\n";
    };
    for (int i = 0; i < steps; ++i) {
      const int64_t at = i * 500'000;
      norm(at, "sequence=" + std::to_string(i));
      if (i < teacher) norm(at + 100'000, "");
      text += "op " + std::to_string(at + 200'000) + ".." +
              std::to_string(at + 290'000) + " thread=0 kind=backward " +
              "sequence=" + std::to_string(i) + " NativeBatchNormBackward0\n" +
              "step " + std::to_string(at) + ".." +
              std::to_string(at + 500'000) +
              " thread=0 number=" + std::to_string(i) + "\n";
    }
    return Analyze(TraceFromText(text));
  };
  EXPECT_TRUE(IsClean(with(6, 6), "validation-mode"));
  EXPECT_TRUE(IsClean(with(2, 2), "validation-mode"));
  EXPECT_FALSE(IsClean(with(6, 2), "validation-mode"));
}

// Instance norms and batch norms with track_running_stats=False use batch
// statistics in eval(), too.
TEST(ValidationModeTest, IgnoresNormsWithoutRunningStatistics) {
  const Report report = WithTwoPasses({.running = ""});
  const Finding* finding = Find(report, "validation-mode");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.find("batch norm"), std::string::npos)
      << finding->evidence;
}

TEST(ValidationModeTest, StaysSilentInEvalMode) {
  EXPECT_TRUE(IsClean(WithTwoPasses({.train = "False"}), "validation-mode"));
}

TEST(ValidationModeTest, RecognisesValidationByDisabledGradientsWithoutAPhase) {
  EXPECT_NE(Find(WithTwoPasses({.phase = ""}), "validation-mode"), nullptr);
  EXPECT_TRUE(IsClean(WithTwoPasses({.phase = "", .validation = "sequence=3"}),
                      "validation-mode"));
}

TEST(ValidationModeTest, ActivationCheckpointingIsNoValidation) {
  EXPECT_TRUE(IsClean(WithTwoPasses({.phase = "", .recompute = true}),
                      "validation-mode"));
}

TEST(ValidationModeTest, NotesMissingInferenceMode) {
  const auto run = [](int grad, int inference) {
    return Analyze(
        TraceFromText("settings 1 step=0 grad_mode=" + std::to_string(grad) +
                      " inference_mode=" + std::to_string(inference) +
                      "\nstep 0..500000 thread=0 number=0\n"
                      "op 0..90000 thread=0 aten::mm\n"));
  };
  ASSERT_NE(Find(run(0, 0), "validation-mode"), nullptr);
  EXPECT_EQ(Find(run(0, 0), "validation-mode")->status, FindingStatus::kOk);
  EXPECT_TRUE(IsClean(run(0, 1), "validation-mode"));
  EXPECT_TRUE(IsClean(run(1, 0), "validation-mode"));
}

TEST(ValidationModeTest, CannotLookWithoutFlagsAndSettings) {
  EXPECT_NE(WhySkipped(WithValidation({}), "validation-mode"), "");
}

// Four steps that validate with gradients: twelve ops of 300 us on tensors of
// size `dims`.
Report Holding(const std::string& dims) {
  CpuText text;
  int sequence = 0;
  const auto numbered = [&] {
    return "sequence=" + std::to_string(sequence) + " ";
  };
  for (int i = 0; i < 4; ++i) {
    text.Op(numbered() + "aten::addmm", 2'000);
    text.Op("kind=backward " + numbered() + "AddmmBackward0", 100);
    ++sequence;
    text.Op(numbered() + "aten::mm", 500);
    for (int k = 0; k < 12; ++k) {
      ++sequence;
      text.Op("inputs=(" + dims + ") " + numbered() + "aten::relu", 300);
    }
    ++sequence;
    text.EndStep();
  }
  return text.Analyzed();
}

// 1 MiB per op in pages of 4 KiB, at 0.25 us per page. The last pass does not
// count, as its backward pass may come after the recording.
TEST(GradInValidationTest, OnACpuCountsThePagesThatTheGraphHolds) {
  const Report large = Holding("float[256,1024]");
  const Finding* finding = Find(large, "grad-in-validation");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 0.75 * 12 * 0.064, 0.02);
  EXPECT_NEAR(
      Find(Holding("float[64,64]"), "grad-in-validation")->gain.expected_ms, 0,
      0.01);
}

// Twenty steps of 10 ms. Every fifth step also runs `passes` passes of 3 ms
// without gradients, in a range if it has a name.
struct Passes {
  int passes = 5;
  std::string named = {};
  int most = 20;          // later steps only train
  bool own_step = false;  // the passes are steps of their own
};
Report WithPasses(const Passes& options) {
  CpuText text;
  for (int i = 0; i < 20; ++i) {
    text.Op("sequence=" + std::to_string(i) + " aten::addmm", 3'000);
    text.Op("kind=backward sequence=" + std::to_string(i) + " AddmmBackward0",
            7'000);
    if (i % 5 == 3 && i < options.most) {
      if (options.own_step) text.EndStep();
      text.Begin();
      for (int k = 0; k < options.passes; ++k) text.Op("aten::mm", 3'000);
      if (!options.named.empty()) text.EndRange(options.named);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(FrequentValidationTest, ReportsItsShareOfAllSteps) {
  const Report report = WithPasses({.named = "evaluate"});
  const Finding* finding = Find(report, "frequent-validation");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_EQ(finding->evidence,
            "4 steps of 20 (every 5th step) run validation for 15.0 ms on "
            "average, 23 % of the time of all steps; longest in aten::mm.");
  EXPECT_NEAR(finding->gain.high_ms, 3, 0.01);
  EXPECT_NEAR(finding->baseline_ms, 13, 0.01);
}

TEST(FrequentValidationTest, IsAHintWhereNothingIsNamed) {
  const Report report = WithPasses({});
  ASSERT_NE(Find(report, "frequent-validation"), nullptr);
  EXPECT_EQ(Find(report, "frequent-validation")->confidence, Confidence::kHint);
}

TEST(FrequentValidationTest, CountsStepsThatDoNotTrainWhole) {
  const Report report = WithPasses({.own_step = true});
  const Finding* finding = Find(report, "frequent-validation");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("for 15.0 ms on average, 23 % of"),
            std::string::npos)
      << finding->evidence;
}

TEST(FrequentValidationTest, LeavesAFifthAlone) {
  EXPECT_TRUE(IsClean(WithPasses({.passes = 4}), "frequent-validation"));
}

TEST(FrequentValidationTest, NeedsMoreThanOneValidation) {
  EXPECT_TRUE(
      IsClean(WithPasses({.passes = 60, .most = 5}), "frequent-validation"));
}

}  // namespace
}  // namespace stepscope::validation_test
