#include "rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::debugging_test {
namespace {

constexpr const char* kNode =
    "autograd::engine::evaluate_function: MulBackward0";

struct Run {
  int steps = 10;
  int checked_steps = 10;
  std::string settings = "";
  bool on_loss_only = false;
};
// Steps of 20 backward nodes. After each node come the checks of anomaly mode.
Report Anomaly(const Run& run) {
  ComputeText text;
  if (!run.settings.empty()) text.Line(run.settings);
  const auto ask = [&] {
    text.Op("aten::isnan", "", {{"elementwise_kernel", 3}}, 15);
    text.Op("aten::_is_any_true", "", {{"reduce_kernel", 3}}, 15);
    text.Begin();
    text.Call("cudaMemcpyAsync", 20);
    text.End("aten::item");
  };
  for (int i = 0; i < run.steps; ++i) {
    const bool checked = i < run.checked_steps;
    text.Op("aten::mm", "", {{"gemm", 200}}, 100);
    if (run.on_loss_only) ask();
    for (int k = 0; k < 20; ++k) {
      text.Begin();
      text.Op("aten::mul", "", {{"elementwise_kernel", 20}}, 20);
      if (checked && !run.on_loss_only) ask();
      text.End(kNode, "", 0, "kind=backward");
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DebugApiTest, FindsAnomalyMode) {
  const Report report = Anomaly({});
  const Finding* finding = Find(report, "debug-api-on");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NE(finding->fix_python.find("set_detect_anomaly"), std::string::npos);
  EXPECT_GT(finding->gain.expected_ms, 0.3);
}

TEST(DebugApiTest, IgnoresASingleDebuggingStep) {
  EXPECT_TRUE(IsClean(Anomaly({.checked_steps = 1}), "debug-api-on"));
  EXPECT_TRUE(IsClean(Anomaly({.checked_steps = 8}), "debug-api-on"));
  EXPECT_FALSE(IsClean(Anomaly({.checked_steps = 9}), "debug-api-on"));
}

TEST(DebugApiTest, IgnoresACheckOfTheLoss) {
  EXPECT_TRUE(IsClean(Anomaly({.on_loss_only = true}), "debug-api-on"));
}

// A program may turn anomaly mode on for its passes alone, so "off" between two
// steps says nothing.
TEST(DebugApiTest, TrustsASettingThatIsOn) {
  EXPECT_FALSE(
      IsClean(Anomaly({.settings = "settings 1 step=0 anomaly_mode=0"}),
              "debug-api-on"));
  EXPECT_TRUE(IsClean(Anomaly({.checked_steps = 0,
                               .settings = "settings 1 step=0 anomaly_mode=0"}),
                      "debug-api-on"));
  EXPECT_FALSE(
      IsClean(Anomaly({.checked_steps = 0,
                       .settings = "settings 1 step=0 anomaly_mode=1"}),
              "debug-api-on"));
}

// Steps with 100 launches; `blocking` of them return only after their kernel.
Report Blocking(int blocking, double us = 20) {
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 100; ++k) {
      text.Begin();
      if (k < blocking) {
        text.BlockingLaunch({"my_kernel", us});
      } else {
        text.Launch({"my_kernel", us});
      }
      text.End("aten::x", "", 10);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DebugApiTest, FindsBlockingLaunches) {
  const Report report = Blocking(100);
  const Finding* finding = Find(report, "debug-api-on");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_cpp.find("CUDA_LAUNCH_BLOCKING"), std::string::npos);
}

TEST(DebugApiTest, NeedsNearlyAllLaunchesToBlock) {
  EXPECT_TRUE(IsClean(Blocking(89), "debug-api-on"));
  EXPECT_FALSE(IsClean(Blocking(90), "debug-api-on"));
  EXPECT_TRUE(IsClean(Blocking(0), "debug-api-on"));
}

TEST(DebugApiTest, IgnoresKernelsThatEndDuringOtherCalls) {
  EXPECT_TRUE(IsClean(Blocking(100, 9), "debug-api-on"));
}

TEST(DebugApiTest, FindsEmitNvtx) {
  const auto run = [](const std::string& name) {
    ComputeText text;
    for (int i = 0; i < 3; ++i) {
      text.Begin();
      text.Op("aten::mm", "", {{"gemm", 200}}, 100);
      text.EndRange(name, "nvtx");
      text.EndStep();
    }
    return text.Analyzed();
  };
  EXPECT_NE(Find(run("aten::mm, seq = 5"), "debug-api-on"), nullptr);
  EXPECT_TRUE(IsClean(run("my own range"), "debug-api-on"));
}

Report OnCpu(const std::string& settings) {
  CpuText text(settings);
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 50; ++k) {
      // Forward: a node that keeps a stack trace, which takes 400 us.
      text.Nested("sequence=" + std::to_string(50 * i + k) + " aten::relu", 500,
                  "aten::clamp_min", k == 0 ? 200 : 100);
    }
    for (int k = 0; k < 50; ++k) {
      text.Nested(
          "kind=backward \"autograd::engine::evaluate_function: "
          "ReluBackward0\"",
          60, "aten::isnan", 50);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DebugApiTest, PredictsAnomalyModeOnACpuAndSilencesLaunchBound) {
  const Report report = OnCpu("settings 1 step=0 anomaly_mode=1\n");
  const Finding* finding = Find(report, "debug-api-on");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // 50 times 380 us of framework code, plus 50 us of checks.
  EXPECT_NEAR(finding->gain.expected_ms, 50 * (0.38 + 0.05), 0.6);
  EXPECT_EQ(Find(report, "launch-bound"), nullptr);
}

// If only the checks show anomaly mode, all time except the ops' own work may
// be stack traces.
TEST(DebugApiTest, BoundsAnomalyModeWithoutRecordedSettings) {
  const Report report = OnCpu("");
  const Finding* finding = Find(report, "debug-api-on");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Steps take 28 ms, of which 50 ops remain at the usual pace of clamp_min,
  // 0.1 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 28 - 50 * 0.1, 0.1);
  EXPECT_NE(finding->evidence.find("The checks take 2.50 ms"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->settings, (std::vector<Setting>{{"anomaly_mode", false}}));
  EXPECT_EQ(Find(report, "launch-bound"), nullptr);
}

// An op that computes by itself includes its stack trace in its own time. The
// rule assumes that it computes for no longer than its node.
TEST(DebugApiTest, PredictsTheStackTracesOfOpsThatCompute) {
  const auto with = [](const char* anomaly_mode) {
    CpuText text(std::string("settings 1 step=0 anomaly_mode=") + anomaly_mode +
                 "\n");
    int64_t sequence = 0;
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 10; ++k) {
        text.Op("sequence=" + std::to_string(sequence + k) +
                    " aten::native_batch_norm",
                5'000);
      }
      for (int k = 0; k < 10; ++k) {
        text.Nested("kind=backward sequence=" + std::to_string(sequence + k) +
                        " NativeBatchNormBackward0",
                    1'500, "aten::native_batch_norm_backward", 1'490);
      }
      sequence += 10;
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report on = with("1");
  const Finding* finding = Find(on, "debug-api-on");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 10 * (5 - 1.5), 1);
  EXPECT_TRUE(IsClean(with("0"), "debug-api-on"));
}

// Views compute nothing, so a view shows the time of a stack trace. The rest of
// a much longer op is work, however short its node is.
TEST(DebugApiTest, BoundsTheStackTracesByTheTimeOfViews) {
  CpuText text("settings 1 step=0 anomaly_mode=1\n");
  int64_t sequence = 0;
  for (int i = 0; i < 3; ++i) {
    text.Op("sequence=" + std::to_string(sequence) + " aten::view", 500);
    text.Op("sequence=" + std::to_string(sequence + 1) + " aten::native_pool",
            50'000);
    for (const char* node : {"PoolBackward0", "ViewBackward0"}) {
      const bool is_view = std::string_view(node).starts_with("View");
      text.Nested("kind=backward sequence=" +
                      std::to_string(sequence + (is_view ? 0 : 1)) + " " + node,
                  20, "aten::empty", 10);
    }
    sequence += 2;
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "debug-api-on");
  ASSERT_NE(finding, nullptr);
  EXPECT_GT(finding->gain.expected_ms, 1);
  EXPECT_LT(finding->gain.expected_ms, 10);  // not 50
}

// Nodes of a validation pass also keep stack traces. Nodes of the same ops with
// a backward pass show how long that takes.
TEST(DebugApiTest, PredictsTheStackTracesOfNodesThatNoBackwardPassVisits) {
  CpuText text("settings 1 step=0 anomaly_mode=1\n");
  int64_t sequence = 0;
  const auto forward = [&](int count, const char* op, int64_t us) {
    for (int k = 0; k < count; ++k) {
      text.Op("sequence=" + std::to_string(sequence++) + op, us);
    }
  };
  for (int i = 0; i < 3; ++i) {
    text.Begin();
    forward(1, " aten::mm", 1'000);
    forward(10, " aten::native_batch_norm", 5'000);
    text.EndRange("kind=phase validate");
    forward(10, " aten::native_batch_norm", 5'000);
    for (int k = 0; k < 10; ++k) {
      text.Nested(
          "kind=backward sequence=" + std::to_string(sequence - 10 + k) +
              " NativeBatchNormBackward0",
          1'500, "aten::native_batch_norm_backward", 1'490);
    }
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "debug-api-on");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2 * 10 * (5 - 1.5), 2);
  // If validation ran without gradients, its nodes would have no stack traces.
  const Finding* validation = Find(report, "grad-in-validation");
  ASSERT_NE(validation, nullptr);
  EXPECT_NEAR(validation->gain.expected_ms, 10 * (5 - 1.5), 2);
  EXPECT_NE(validation->assumption.find("stack traces"), std::string::npos);
}

TEST(ArgumentChecksTest, CountsComparisonsAndReadsWithTheChecks) {
  const auto with = [](const std::string& check) {
    CpuText text;
    for (int step = 0; step < 4; ++step) {
      text.Op("aten::mm", 10'000);
      text.Op("aten::ge", 100);
      text.Op("aten::le", 100);
      text.Op("aten::__and__", 100);
      text.Op(check, 200);
      text.Op("aten::is_nonzero", 50);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report report = with("aten::_is_all_true");
  const Finding* finding = Find(report, "argument-checks");
  ASSERT_NE(finding, nullptr) << ToText(report, {.verbose = true});
  EXPECT_NEAR(finding->gain.expected_ms, 0.55, 0.001);
  EXPECT_NE(finding->evidence.find("1 time per step"), std::string::npos);
  // The program's own assertions.
  EXPECT_TRUE(IsClean(with("aten::all"), "argument-checks"));
}

// Steps of 10 ms with ten allocations, in which a fill of 0.2 ms runs inside
// `around`.
Report Filling(const std::string& around) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 10; ++i) {
      text.Nested(around, 210, "aten::fill_", 200);
    }
    text.Op("aten::mm", 7'900);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DeterministicFillTest, FindsFillsInsideAllocations) {
  const Report report = Filling("aten::empty_strided");
  const Finding* finding = Find(report, "deterministic-fill");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_NE(finding->evidence.find("10 times per step"), std::string::npos)
      << finding->evidence;
}

TEST(DeterministicFillTest, LeavesFillsThatTheProgramAsksFor) {
  EXPECT_TRUE(IsClean(Filling("aten::zeros"), "deterministic-fill"));
  EXPECT_TRUE(IsClean(Filling("aten::full"), "deterministic-fill"));
}

}  // namespace
}  // namespace stepscope::debugging_test
