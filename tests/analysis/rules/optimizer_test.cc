#include "rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::optimizer_test {
namespace {

struct Run {
  int parameters = 60;
  int per_parameter = 2;
  std::string update = "aten::add_";
  bool named = true;
  std::string name = "SGD";
  int validation = 0;  // number of forward ops after the updates
  bool clips = false;  // clip_grad_norm_ before the updates
  int passes = 1;      // backward passes per step
  std::string cuda = "12.8";
};
Report OnGpu(const Run& run) {
  ComputeText text;
  if (!run.cuda.empty()) text.Line("run cuda_version=" + run.cuda);
  for (int i = 0; i < 3; ++i) {
    for (int pass = 0; pass < run.passes; ++pass) {
      text.Op("aten::mm", "", {{"gemm", 500}}, 500);
      for (int k = 0; k < run.parameters; ++k) {
        text.Op("torch::autograd::AccumulateGrad", "", {}, 5, "kind=backward");
      }
    }
    for (const char* op : {"aten::linalg_vector_norm", "aten::stack",
                           "aten::add", "aten::reciprocal", "aten::clamp"}) {
      if (run.clips) text.Op(op, "", {{"a kernel", 3}}, 20);
    }
    text.Begin();
    for (int k = 0; k < run.parameters * run.per_parameter; ++k) {
      text.Op(run.update, "", {{"void multi_tensor_or_not()", 3}}, 20);
    }
    if (run.named) {
      text.EndRange("Optimizer.step#" + run.name + ".step", "optimizer");
    }
    for (int k = 0; k < run.validation; ++k) {
      text.Op("aten::linear", "", {{"gemm", 10}}, 20);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnfusedOptimizerTest, FiresOnOneUpdateAfterTheOther) {
  const Report report = OnGpu({});
  const Finding* finding = Find(report, "unfused-optimizer");
  ASSERT_NE(finding, nullptr);
  // 120 updates of 20 us become four launches, for which Python collects 60
  // parameters.
  EXPECT_NEAR(finding->gain.expected_ms, 2.4 - 0.05 - 4 * 0.01 - 60 * 0.002,
              0.02);
  EXPECT_NE(finding->evidence.find("60 parameters in 120 launches"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_cpp.find("_fused_sgd_"), std::string::npos);
}

// Since CUDA 13, a kernel takes more arguments.
TEST(UnfusedOptimizerTest, CountsParametersPerLaunchByTheVersionOfCuda) {
  const struct {
    std::string cuda;
    int per_launch;
    int launches;  // of two updates of 600 parameters
  } kCases[] = {{"", 36, 34}, {"12.9", 36, 34}, {"13.0", 252, 6}};
  for (const auto& test : kCases) {
    const Report report = OnGpu({.parameters = 600, .cuda = test.cuda});
    const Finding* finding = Find(report, "unfused-optimizer");
    ASSERT_NE(finding, nullptr);
    EXPECT_TRUE(finding->assumption.ends_with(
        "one kernel per " + std::to_string(test.per_launch) + " parameters"))
        << finding->assumption;
    EXPECT_NEAR(finding->gain.expected_ms,
                24 - 0.05 - test.launches * 0.01 - 600 * 0.002, 0.02)
        << test.cuda;
  }
}

std::string FixOf(const Report& report) {
  const Finding* finding = Find(report, "unfused-optimizer");
  return finding == nullptr ? "" : finding->fix_python;
}

TEST(UnfusedOptimizerTest, NamesTheOptimizerOfTheRecording) {
  EXPECT_TRUE(FixOf(OnGpu({.name = "AdamW"}))
                  .starts_with("torch.optim.AdamW(..., fused=True)"));
  EXPECT_TRUE(FixOf(OnGpu({.name = "RMSprop"}))
                  .starts_with("RMSprop has no fused version"));
  EXPECT_TRUE(
      FixOf(OnGpu({.named = false})).starts_with("fused=True (available"));
}

TEST(UnfusedOptimizerTest, SeesLibTorchWhereNoRangeNamesTheStep) {
  EXPECT_NE(Find(OnGpu({.named = false}), "unfused-optimizer"), nullptr);
}

TEST(UnfusedOptimizerTest, ClippingBeforeTheUpdatesHidesNothing) {
  EXPECT_NE(Find(OnGpu({.named = false, .clips = true}), "unfused-optimizer"),
            nullptr);
}

TEST(UnfusedOptimizerTest, GradientAccumulationAddsNoParameters) {
  const Report report = OnGpu({.passes = 4});
  const Finding* finding = Find(report, "unfused-optimizer");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("60 parameters in 120 launches"),
            std::string::npos)
      << finding->evidence;
}

TEST(UnfusedOptimizerTest, ValidationBehindTheUpdatesIsNotCounted) {
  EXPECT_TRUE(
      IsClean(OnGpu({.per_parameter = 0, .named = false, .validation = 200}),
              "unfused-optimizer"));
}

TEST(UnfusedOptimizerTest, StaysSilentOnFewParameters) {
  EXPECT_TRUE(IsClean(OnGpu({.parameters = 49}), "unfused-optimizer"));
  EXPECT_FALSE(IsClean(OnGpu({.parameters = 50}), "unfused-optimizer"));
}

TEST(UnfusedOptimizerTest, StaysSilentOnForeachAndFused) {
  EXPECT_TRUE(
      IsClean(OnGpu({.update = "aten::_foreach_add_"}), "unfused-optimizer"));
  EXPECT_TRUE(
      IsClean(OnGpu({.update = "aten::_fused_adamw_"}), "unfused-optimizer"));
}

TEST(UnfusedOptimizerTest, StaysSilentOnFewLaunches) {
  EXPECT_TRUE(IsClean(OnGpu({.per_parameter = 0}), "unfused-optimizer"));
}

TEST(UnfusedOptimizerTest, StaysSilentWhereNothingIsTrained) {
  EXPECT_TRUE(
      IsClean(Analyze(TraceFromText("step 0..1000000 thread=0 number=0\n"
                                    "op 0..900000 thread=0 aten::mm\n")),
              "unfused-optimizer"));
}

TEST(UnfusedOptimizerTest, IsABoundOnACpu) {
  std::string text;
  int64_t now = 0;
  const auto line = [&](const std::string& kind, int64_t begin, int64_t end,
                        const std::string& rest) {
    text += kind + " " + std::to_string(begin) + ".." + std::to_string(end) +
            " thread=0 " + rest + "\n";
  };
  for (int i = 0; i < 3; ++i) {
    const int64_t begin = now;
    line("op", now, now + 1'000'000, "aten::mm");
    now += 1'000'000;
    for (int k = 0; k < 60; ++k) {
      line("op", now, now + 1'000,
           "kind=backward torch::autograd::AccumulateGrad");
      now += 1'000;
    }
    const int64_t update = now;
    for (int k = 0; k < 60; ++k) {
      line("op", now, now + 10'000, "aten::add_");
      now += 15'000;
    }
    line("range", update, now, "kind=phase optimizer");
    line("step", begin, now, "number=" + std::to_string(i));
  }
  const Report report = Analyze(TraceFromText(text));
  const Finding* finding = Find(report, "unfused-optimizer");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 60 * 0.005, 0.01);
}

// 60 parameters of 4 MB under SGD with momentum, as LibTorch runs it: the ops
// move 8 tensors per parameter, and a fused step needs 5.
Report OnCpu(bool momentum) {
  const std::string tensor = "float[1000,1000]";
  CpuText text;
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::mm", 100'000);
    for (int k = 0; k < 60; ++k) {
      text.Op("kind=backward torch::autograd::AccumulateGrad", 1);
    }
    text.Begin();
    for (int k = 0; k < 60; ++k) {
      if (momentum) {
        text.Op("inputs=(" + tensor + ") aten::mul_", 200, 10);
        text.Op("inputs=(" + tensor + "," + tensor + ") aten::add_", 300, 10);
      }
      text.Op("inputs=(" + tensor + "," + tensor + ") aten::add_", 300, 10);
    }
    text.EndRange("kind=phase optimizer");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnfusedOptimizerTest, PredictsOnePassOverTheTensorsOnACpu) {
  const Report report = OnCpu(true);
  const Finding* finding = Find(report, "unfused-optimizer");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // Saves three eighths of 48 ms, and the code between 180 ops.
  EXPECT_NEAR(finding->gain.expected_ms, 18 + 1.8, 0.3);
  EXPECT_EQ(finding->settings,
            (std::vector<Setting>{{"optimizer_step", std::string("fused")}}));
}

TEST(UnfusedOptimizerTest, IgnoresPlainUpdatesInOnePass) {
  const Report report = OnCpu(false);
  const Finding* finding = Find(report, "unfused-optimizer");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 0.6, 0.1);  // code between updates
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
}

// AdamW in foreach ops on a list of two tensors of 4 MB.
Report Foreach(bool sizes, const std::vector<std::string>& ops,
               const std::string& name = "AdamW", int64_t first_us = 0) {
  const std::string list = "TensorList(float[1000,1000],float[1000,1000])";
  CpuText text;
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::mm", 10'000);
    text.Begin();
    for (const std::string& op : ops) {
      const size_t comma = op.find(' ');
      const int lists = std::stoi(op.substr(0, comma));
      std::string inputs = "inputs=(" + list;
      for (int k = 1; k < lists; ++k) inputs += "," + list;
      const bool first = &op == &ops.front();
      text.Op((sizes ? inputs + ") " : "") + op.substr(comma + 1),
              100 * (lists + 1) + (first ? first_us : 0));
    }
    text.EndRange("kind=optimizer Optimizer.step#" + name + ".step");
    text.EndStep();
  }
  return text.Analyzed();
}
const std::vector<std::string> kAdamW = {
    "1 aten::_foreach_mul_", "2 aten::_foreach_lerp_",
    "1 aten::_foreach_mul_", "3 aten::_foreach_addcmul_",
    "1 aten::_foreach_sqrt", "1 aten::_foreach_div_",
    "1 aten::_foreach_add_", "3 aten::_foreach_addcdiv_"};

TEST(ForeachNotFusedTest, CountsTheTensorsMoved) {
  const Report report = Foreach(true, kAdamW);
  const Finding* finding = Find(report, "foreach-not-fused");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // The ops move 21 tensors per parameter in 2.1 ms; a fused step moves 7.
  EXPECT_NEAR(finding->gain.expected_ms, 1.4, 0.05);
  EXPECT_NE(finding->evidence.find("AdamW updates its parameters in 8 foreach"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->fix_python, "torch.optim.AdamW(..., fused=True)");
  EXPECT_NE(finding->fix_cpp.find("at::_fused_adamw_"), std::string::npos);
}

// An op that takes long for its bytes does not set the expected pace of a fused
// update.
TEST(ForeachNotFusedTest, TakesThePaceOfMostBytes) {
  const Report report = Foreach(true, kAdamW, "AdamW", 2'000);
  const Finding* finding = Find(report, "foreach-not-fused");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4.1 - 0.7, 0.05);
}

TEST(ForeachNotFusedTest, GoesByNamesWhereSizesWereNotRecorded) {
  const Report report = Foreach(false, kAdamW);
  const Finding* finding = Find(report, "foreach-not-fused");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.4, 0.05);
}

TEST(ForeachNotFusedTest, PlainSgdIsOnePassAlready) {
  EXPECT_TRUE(IsClean(Foreach(true, {"2 aten::_foreach_add_"}, "SGD"),
                      "foreach-not-fused"));
}

TEST(ForeachNotFusedTest, StaysSilentOnFusedAndSingleUpdates) {
  EXPECT_TRUE(
      IsClean(Foreach(true, {"4 aten::_fused_adamw_"}), "foreach-not-fused"));
  EXPECT_TRUE(IsClean(Foreach(true, {"1 aten::mul_"}), "foreach-not-fused"));
}

TEST(ForeachNotFusedTest, ShortensTheKernelsOnAGpu) {
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::mm", "", {{"gemm", 500}}, 500);
    text.Begin();
    for (const char* op : {"aten::_foreach_mul_", "aten::_foreach_lerp_",
                           "aten::_foreach_mul_", "aten::_foreach_addcmul_",
                           "aten::_foreach_sqrt", "aten::_foreach_div_",
                           "aten::_foreach_add_", "aten::_foreach_addcdiv_"}) {
      text.Op(op, "", {{"void multi_tensor_apply_kernel()", 200}}, 20);
    }
    text.EndRange("Optimizer.step#AdamW.step", "optimizer");
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "foreach-not-fused");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("AdamW"), std::string::npos);
  // Eight ops of 200 us move 21 tensors; a fused step moves 7.
  EXPECT_NEAR(finding->gain.expected_ms, 1.6 * 2 / 3, 0.2);
}

}  // namespace
}  // namespace stepscope::optimizer_test
