#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"
#include "support/gpu_text.h"

namespace stepscope::loops_test {
namespace {

// A loop that calls a 64 x 64 layer once per sample, between two products of 2
// ms.
struct How {
  int passes = 32;
  int rows = 1;         // of the layer's input
  bool product = true;  // else the loop compares numbers
  std::string reads = "aten::_local_scalar_dense";  // the op after that
  bool own_weights = false;  // each pass accumulates its gradients: a layer
  bool backward = true;
  bool one_by_one = false;  // each pass ends with its backward pass
  bool picks = false;       // each pass picks the next sample
  bool updates = false;     // and then the optimizer steps
  bool on_gpu = false;
  double us = 15;         // time of each op
  std::string kind = {};  // kind of a range around the loop
  std::string also = {};  // an extra op in each pass
  int more = 0;           // number of further ops in each pass
  int images = 1;         // loops of so many passes, one after the other
};

class Loop {
 public:
  explicit Loop(How how) : how_(std::move(how)) {}

  Report Analyzed() {
    for (int step = 0; step < 4; ++step) {
      Op("aten::mm", "(float[64,64],float[64,64])", 2'000);
      if (!how_.kind.empty()) text_.Begin();
      for (int image = 0; image < how_.images; ++image) {
        for (int i = 0; i < how_.passes; ++i) Pass(i);
        if (how_.images > 1) Op("aten::full", "", 5);
      }
      if (!how_.kind.empty())
        text_.EndRange("Optimizer.step#SGD.step", how_.kind);
      Op("aten::sum", "", 20);
      const bool backward = how_.backward && how_.product && !how_.one_by_one;
      for (int i = how_.passes; backward && i-- > 0;) BackwardOf(i);
      if (backward && !how_.own_weights) Accumulate();
      Op("aten::mm", "(float[64,64],float[64,64])", 2'000);
      sequence_ += how_.passes;
      text_.EndStep();
    }
    return text_.Analyzed();
  }

 private:
  void Op(const std::string& name, const std::string& inputs, double us,
          const std::string& fields = "") {
    if (how_.on_gpu) {
      text_.Op(name, inputs, {{"a kernel of " + name, us / 10}}, us, fields);
    } else {
      text_.Op(name, inputs, {}, us, fields);
    }
  }
  void Pass(int i) {
    text_.Pass(5);
    if (how_.picks) {
      Op("aten::select",
         "(float[32," + std::to_string(how_.rows) +
             ",64],Scalar=\"0\",Scalar=\"" + std::to_string(i) + "\")",
         1);
    }
    if (how_.product) {
      Op("aten::addmm",
         "(float[64],float[" + std::to_string(how_.rows) + ",64],float[64,64])",
         how_.us, "sequence=" + std::to_string(sequence_ + i));
    } else {
      Op("aten::eq", "", how_.us);
    }
    text_.Pass(5);
    Op(how_.product ? "aten::relu" : how_.reads, "", how_.us);
    if (!how_.also.empty()) Op(how_.also, "", how_.us);
    for (int op = 0; op < how_.more; ++op) {
      Op(op % 2 == 0 ? "aten::clamp" : "aten::sub", "", how_.us);
    }
    if (!how_.one_by_one) return;
    text_.Begin();
    text_.Pass(1);
    // The gradient of the weights has the size of the weights.
    Op("aten::mm", "(float[64,1],float[1,64])", how_.us);
    text_.End("AddmmBackward0", "", 5,
              "kind=backward sequence=" + std::to_string(sequence_ + i));
    if (how_.own_weights) Accumulate();
    if (!how_.updates) return;
    text_.Begin();
    Op("aten::add_", "(float[64,64],float[64,64])", how_.us);
    text_.EndRange("Optimizer.step#SGD.step", "optimizer");
  }
  void BackwardOf(int i) {
    Op("AddmmBackward0", "", 2 * how_.us,
       "kind=backward sequence=" + std::to_string(sequence_ + i));
    if (how_.own_weights) Accumulate();
  }
  void Accumulate() {
    Op("torch::autograd::AccumulateGrad", "", 5, "kind=backward");
  }

  How how_;
  ComputeText text_;
  int sequence_ = 1;
};

Report Of(How how) { return Loop(std::move(how)).Analyzed(); }

// Computes the loss of each position of some scores. Each node returns a
// gradient as large as all scores, which the engine adds up. Each pass takes 10
// us, and each node takes `us`, including its sum. The loop starts after the
// first select.
Report OverPositions(const std::string& gradient, int64_t us) {
  CpuText text;
  int64_t sequence = 0;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::mm", 2'000);
    const int64_t first = sequence;
    for (int i = 0; i < 32; ++i) {
      text.Op("sequence=" + std::to_string(sequence++) + " aten::select", 3);
      text.Op("aten::select", 2);  // picks the label
      text.Op("aten::nll_loss", 5);
    }
    text.Op("aten::sum", 20);
    for (int64_t number = sequence; number-- > first;) {
      text.Nested("kind=backward sequence=" + std::to_string(number) +
                      " autograd::engine::evaluate_function: XBackward0",
                  us, gradient, us / 2, "aten::add_", us / 2);
    }
    text.Op("aten::mm", 2'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnbatchedLoopTest, CountsTheGradientsOfPicksWithTheLoop) {
  const auto gain = [](const std::string& gradient) {
    const Report report = OverPositions(gradient, 200);
    const Finding* finding = Find(report, "unbatched-loop");
    return finding == nullptr ? -1 : finding->gain.expected_ms;
  };
  const double whole = 0.315 + 31 * 0.2;
  EXPECT_NEAR(gain("aten::select_backward"), whole * 31 / 32, 0.02);
  // In another op, the time beyond 20 us of overhead is work that remains.
  EXPECT_NEAR(gain("aten::mul"), (whole - 31 * 2 * 0.08) * 31 / 32, 0.02);
}

TEST(UnbatchedLoopTest, PredictsThatOnePassOfALoopRemains) {
  const Report report = Of({});
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // 32 passes of 40 us, without the first gap, and 32 nodes of 30 us.
  EXPECT_NEAR(finding->gain.expected_ms, (1.275 + 0.96) * 31 / 32, 0.01);
  EXPECT_NE(finding->evidence.find(
                "aten::addmm > aten::relu (32 times per step, 2.23 ms)"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->fix_python.find(".tolist()"), std::string::npos);
}

TEST(UnbatchedLoopTest, AdvisesToReadAllValuesAtOnce) {
  const Report report = Of({.product = false});
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.275 * 31 / 32, 0.01);
  EXPECT_NE(finding->fix_python.find(".tolist()"), std::string::npos);
}

TEST(UnbatchedLoopTest, LeavesTheWorkOfLongOps) {
  const Report report = Of({.product = false, .us = 100});
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  // Of each op, the time beyond 20 us is work and remains: 80 us.
  EXPECT_NEAR(finding->gain.expected_ms,
              (32 * 0.21 - 0.005 - 64 * 0.08) * 31 / 32, 0.01);
}

TEST(UnbatchedLoopTest, NeedsAPickWherePassesMayDependOnEachOther) {
  How how{.product = false, .reads = "aten::sqrt"};
  EXPECT_TRUE(IsClean(Of(how), "unbatched-loop"));
  how.also = "aten::index";
  EXPECT_FALSE(IsClean(Of(how), "unbatched-loop"));
}

// Python's sum() over a tensor adds the elements one by one.
TEST(UnbatchedLoopTest, SeesOneOpPerElementAsALoop) {
  const auto sum_of = [](const std::string& size,
                         const std::string& op = "aten::add") {
    CpuText text;
    for (int step = 0; step < 4; ++step) {
      text.Op("aten::mm", 1'000);
      text.Op("inputs=(bool" + size + ",Scalar=\"0\") aten::unbind", 50);
      for (int i = 0; i < 64; ++i) text.Op(op, 10);
      text.Op("aten::mm", 1'000);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report report = sum_of("[64]");
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  // The adds and aten::unbind, minus one pass.
  EXPECT_NEAR(finding->gain.expected_ms, (0.64 + 0.05) * 63 / 64, 0.05);
  EXPECT_NE(finding->fix_python.find("tensor.sum()"), std::string::npos);
  EXPECT_TRUE(IsClean(sum_of("[48]"), "unbatched-loop"));
  // Each element changes a state, as in a spiking neuron.
  EXPECT_TRUE(IsClean(sum_of("[64]", "aten::lerp"), "unbatched-loop"));
}

// Loops over 32 time steps, from the last to the first if `backwards`.
Report Scans(int loops, bool backwards, const std::string& last = "aten::add") {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::mm", 4'000);
    for (int loop = 0; loop < loops; ++loop) {
      text.Op("aten::zeros_like", 5);
      for (int t = 0; t < 32; ++t) {
        text.Op("inputs=(float[32,8],Scalar=\"0\",Scalar=\"" +
                    std::to_string(backwards ? 31 - t : t) + "\") aten::select",
                10);
        text.Op("aten::mul", 15);
        text.Op(last, 15);
      }
    }
    text.EndStep();
  }
  return text.Analyzed();
}

// Discounted returns of one time step depend on the next one.
TEST(UnbatchedLoopTest, AdvisesAnotherFixForALoopBackwardsInTime) {
  const auto fix = [](const Report& report) {
    const Finding* finding = Find(report, "unbatched-loop");
    return finding ? finding->fix_python : "";
  };
  EXPECT_TRUE(fix(Scans(3, false)).starts_with("call the ops once"));
  const Report report = Scans(3, true);
  EXPECT_TRUE(fix(report).starts_with("compute for all times at once what"));
  EXPECT_NEAR(Find(report, "unbatched-loop")->gain.expected_ms, 3 * 32 * 0.04,
              0.3);
  // Each pass applies a model to the result of the pass before.
  EXPECT_TRUE(IsClean(Scans(3, true, "inputs=(float[1,8],float[8,8]) aten::mm"),
                      "unbatched-loop"));
}

TEST(UnbatchedLoopTest, MergesLoopsBackwardsInTime) {
  const Report report = Scans(4, true);
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  // One of four loops remains.
  EXPECT_NEAR(finding->gain.expected_ms, 0.75 * 4 * 32 * 0.04, 0.3);
}

// A policy that is called once per environment, without sizes. Each call
// uploads an observation and reads an action.
TEST(UnbatchedLoopTest, KnowsCallsByTheirRoundTripsWithoutSizes) {
  const auto with = [](bool uploads, bool reads) {
    GpuText run;
    for (int step = 0; step < 4; ++step) {
      for (int environment = 0; environment < 24; ++environment) {
        if (uploads) {
          run.Begin("op", "aten::to");
          run.BlockingCopy(2, "pageable", "device", 64);
          run.End();
        }
        for (const char* op : {"aten::mm", "aten::tanh"}) {
          run.Begin("op", op);
          run.Kernel(3, "kernel");
          run.Pass(10);
          run.End();
        }
        if (reads) run.Item();
      }
      run.Op(200, "aten::sum");
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report report = with(true, true);
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->fix_python.find("environments"), std::string::npos);
  // Layers of one network, or steps of a recurrence.
  EXPECT_TRUE(IsClean(with(false, true), "unbatched-loop"));
  EXPECT_TRUE(IsClean(with(true, false), "unbatched-loop"));
}

// The first value that the loop reads comes behind the products.
TEST(UnbatchedLoopTest, LeavesOutAWaitForWorkFromBeforeTheLoop) {
  GpuText run;
  for (int step = 0; step < 4; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(3'000, "gemm");
    run.End();
    for (int i = 0; i < 32; ++i) {
      run.Begin("op", "aten::histc");
      run.Kernel(20, "kernelHistogram1D");
      run.Pass(5);
      run.End();
      run.Item();
    }
    run.EndStep();
  }
  const Report report = run.Analyzed();
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("Such loops take 0.95 ms of the 3.96 ms"),
            std::string::npos)
      << finding->evidence;
}

TEST(UnbatchedLoopTest, NeedsSixteenPasses) {
  EXPECT_TRUE(IsClean(Of({.passes = 15, .us = 20}), "unbatched-loop"));
  EXPECT_FALSE(IsClean(Of({.passes = 16, .us = 20}), "unbatched-loop"));
}

// For example, over the boxes of each image. A few equal passes may be chance,
// and a few loops cost little.
TEST(UnbatchedLoopTest, AddsUpShortLoopsOfOneKind) {
  const auto loops = [](int images, int passes) {
    return Of({.passes = passes, .product = false, .us = 40, .images = images});
  };
  const Report report = loops(8, 5);
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("40 times per step"), std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(loops(15, 3), "unbatched-loop"));
  EXPECT_TRUE(IsClean(loops(3, 5), "unbatched-loop"));
  EXPECT_FALSE(IsClean(loops(4, 4), "unbatched-loop"));
}

// For example, matching boxes with anchors takes about forty ops per image.
TEST(UnbatchedLoopTest, FollowsPassesOfUpToSixtyFourOps) {
  EXPECT_FALSE(IsClean(Of({.more = 62}), "unbatched-loop"));
  EXPECT_TRUE(IsClean(Of({.more = 63}), "unbatched-loop"));
}

TEST(UnbatchedLoopTest, IgnoresPassesOverBatches) {
  EXPECT_TRUE(IsClean(Of({.rows = 2}), "unbatched-loop"));
}

TEST(UnbatchedLoopTest, IgnoresLayersWithTheirOwnWeights) {
  EXPECT_TRUE(IsClean(Of({.own_weights = true}), "unbatched-loop"));
  // Without a backward pass, nothing shows whether passes share the weights.
  EXPECT_TRUE(IsClean(Of({.backward = false}), "unbatched-loop"));
}

// A policy that runs for one environment at a time without gradients: 32 passes
// between two sorts. If `pick` is set, each pass first picks a row of a tensor
// of that size. Before pass `other`, a pass of another kind runs.
Report Policy(const std::string& before, const std::string& pick = "",
              int other = -1) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::sort", 1'000);
    if (!before.empty()) text.Op(before, 10);
    for (int i = 0; i < 32; ++i) {
      if (i == other) text.Op("aten::eq", 10);
      if (!pick.empty()) {
        text.Op("inputs=(float[" + pick + "],Scalar=\"0\",Scalar=\"" +
                    std::to_string(i) + "\") aten::select",
                2);
      }
      text.Op("inputs=(float[24],float[128,24],float[128]) aten::linear", 20);
      text.Op("inputs=(float[128]) aten::relu", 10);
    }
    text.Op("aten::sort", 1'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnbatchedLoopTest, TellsLoopsFromLayersByTheirElementsWithoutGradients) {
  EXPECT_TRUE(IsClean(Policy(""), "unbatched-loop"));
  EXPECT_TRUE(
      Promises(Policy("inputs=(float[32,24],Scalar=\"0\") aten::unbind"),
               "unbatched-loop"));
  EXPECT_TRUE(IsClean(Policy("inputs=(float[3,24],Scalar=\"0\") aten::unbind"),
                      "unbatched-loop"));
  EXPECT_TRUE(Promises(Policy("", "32,24"), "unbatched-loop"));
  // The passes after `other` continue with elements of the same tensor.
  EXPECT_TRUE(
      Promises(Policy("inputs=(float[32,24],Scalar=\"0\") aten::unbind", "", 8),
               "unbatched-loop"));
  EXPECT_TRUE(
      IsClean(Policy("inputs=(float[32,7],Scalar=\"0\") aten::unbind", "", 8),
              "unbatched-loop"));
  // Each layer takes a part of an unrelated tensor.
  EXPECT_TRUE(IsClean(Policy("", "32,7"), "unbatched-loop"));
}

TEST(UnbatchedLoopTest, AllowsABackwardPassPerPass) {
  // Programs that keep or accumulate gradients of single samples do this.
  for (bool accumulates : {false, true}) {
    const Report report = Of({.own_weights = accumulates, .one_by_one = true});
    const Finding* finding = Find(report, "unbatched-loop");
    ASSERT_NE(finding, nullptr);
    // 32 passes of 56 us, or of 61 us when they accumulate gradients.
    EXPECT_NEAR(finding->gain.expected_ms, (accumulates ? 0.061 : 0.056) * 31,
                0.02);
    EXPECT_NE(finding->evidence.find("and their backward passes"),
              std::string::npos);
  }
}

// As in meta-learning: each pass takes the ten samples of a task.
TEST(UnbatchedLoopTest, AllowsSeveralRowsWithABackwardPassPerPass) {
  const Report report = Of({.rows = 10, .one_by_one = true, .picks = true});
  EXPECT_TRUE(Promises(report, "unbatched-loop"));
  EXPECT_TRUE(IsClean(Of({.rows = 10, .one_by_one = true}), "unbatched-loop"));
  // A recurrence picks the next element as well.
  EXPECT_TRUE(IsClean(Of({.rows = 10, .picks = true}), "unbatched-loop"));
}

TEST(UnbatchedLoopTest, IgnoresPassesSeparatedByAnUpdate) {
  EXPECT_TRUE(
      IsClean(Of({.own_weights = true, .one_by_one = true, .updates = true}),
              "unbatched-loop"));
}

TEST(UnbatchedLoopTest, LeavesOptimizerAndLoaderToTheirRules) {
  How how{.product = false};
  for (const char* kind : {"optimizer", "loader"}) {
    how.kind = kind;
    EXPECT_TRUE(IsClean(Of(how), "unbatched-loop")) << kind;
  }
  how.kind = "user";
  EXPECT_FALSE(IsClean(Of(how), "unbatched-loop"));
}

TEST(UnbatchedLoopTest, LeavesCollectivesToOtherRules) {
  EXPECT_TRUE(IsClean(Of({.product = false, .also = "c10d::allreduce_"}),
                      "unbatched-loop"));
}

TEST(UnbatchedLoopTest, NeedsATenthOfTheStep) {
  // 16 passes take 0.39 ms of a 4.4 ms step.
  EXPECT_TRUE(
      IsClean(Of({.passes = 16, .product = false, .us = 7}), "unbatched-loop"));
}

TEST(UnbatchedLoopTest, PredictsNoMoreThanTheGpuWaits) {
  const Report report = Of({.on_gpu = true});
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  EXPECT_LT(finding->gain.expected_ms,
            report.time_split_ms.at("dispatch") +
                report.time_split_ms.at("host_code") + 0.01);
}

// Augments images of a batch one by one, and flips every `flips`-th of them.
// Before each pass, it selects an image.
Report Augmented(int flips, bool numbered, int images = 32) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::mm", 2'000);
    for (int i = 0; i < 32; ++i) {
      text.Op(
          "inputs=(float[" + std::to_string(images) + ",3,8,8]" +
              (numbered ? ",Scalar=\"0\",Scalar=\"" + std::to_string(i) + "\""
                        : std::string()) +
              ") aten::select",
          5);
      for (const char* op : {"aten::mul", "aten::clamp", "aten::sub"}) {
        text.Op(op, 15);
      }
      if (i % flips == 0 || i % 7 == 0) text.Op("aten::flip", 15);
    }
    text.Op("aten::mm", 2'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnbatchedLoopTest, PassesMayDiffer) {
  const Report report = Augmented(3, true);
  const Finding* finding = Find(report, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("aten::mul > aten::clamp > aten::sub"),
            std::string::npos)
      << finding->evidence;
  // Indices may be unknown, but then the loop must take all elements.
  EXPECT_NE(Find(Augmented(3, false), "unbatched-loop"), nullptr);
  EXPECT_EQ(Find(Augmented(3, false, 64), "unbatched-loop"), nullptr);
}

// All walkers move at once, in 32 transitions. Each selects one of the two
// coordinates (the same in each transition, or another one), and gathers along
// dimension `dim`.
Report Walking(bool same, int dim) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::sort", 2'000);
    for (int i = 0; i < 32; ++i) {
      text.Op("inputs=(float[64,16,2],Scalar=\"2\",Scalar=\"" +
                  std::to_string(same ? 0 : i % 2) + "\") aten::select",
              5);
      text.Op("aten::remainder", 15);
      text.Op("inputs=(float[64,6400],Scalar=\"" + std::to_string(dim) +
                  "\",long[64,16]) aten::gather",
              15);
      text.Op("aten::mul", 15);
    }
    text.Op("aten::sort", 2'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnbatchedLoopTest, IgnoresPassesThatTakeTheSameOfAllElements) {
  EXPECT_TRUE(IsClean(Walking(true, 1), "unbatched-loop"));
  EXPECT_FALSE(IsClean(Walking(false, 1), "unbatched-loop"));
  EXPECT_FALSE(IsClean(Walking(true, 0), "unbatched-loop"));
}

// A frozen encoder without recorded sizes that attends 20 times, to one window
// after the other; if `projects`, with a layer of its own each time.
Report Attending(bool projects, bool quantised = false) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::linear", 1'000);
    for (int i = 0; i < 20; ++i) {
      if (projects) text.Nested("aten::linear", 30, "aten::addmm", 20);
      if (quantised) text.Op("quantized::linear_dynamic", 30);
      text.Nested("aten::scaled_dot_product_attention", 50,
                  "aten::_scaled_dot_product_flash_attention_for_cpu", 40);
    }
    text.Op("aten::sum", 100);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnbatchedLoopTest, AttentionWithoutLayersIsOverWindows) {
  const Report windows = Attending(false);
  const Finding* finding = Find(windows, "unbatched-loop");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("(20 times per step"), std::string::npos);
  EXPECT_NE(finding->fix_python.find("flash_attn_varlen_func"),
            std::string::npos);
  EXPECT_TRUE(IsClean(Attending(true), "unbatched-loop"));
  EXPECT_TRUE(IsClean(Attending(false, true), "unbatched-loop"));
}

}  // namespace
}  // namespace stepscope::loops_test
