#include "rule_testing.h"
#include "support/cpu_text.h"
#include "support/trace_text.h"

namespace stepscope::gradients_test {
namespace {

// A step with `parameters` parameters: zeroing if `zero`, then `passes`
// backward passes. Their AccumulateGrad nodes add to existing gradients if
// `add`.
Report Training(bool zero, bool add, int passes = 1, bool named = true) {
  std::string text;
  int64_t now = 0;
  const auto line = [&](const std::string& kind, int64_t ns,
                        const std::string& rest) {
    text += kind + " " + std::to_string(now) + ".." + std::to_string(now + ns) +
            " thread=0 " + rest + "\n";
  };
  for (int step = 0; step < 3; ++step) {
    const int64_t begin = now;
    const int64_t zero_begin = now;
    for (int i = 0; zero && i < 20; ++i) {
      line("op", 10'000, "aten::zero_");
      now += 10'000;
    }
    if (zero && named) {
      text += "range " + std::to_string(zero_begin) + ".." +
              std::to_string(now) +
              " thread=0 kind=optimizer Optimizer.zero_grad#SGD.zero_grad\n";
    }
    line("op", 500'000, "aten::mm");
    now += 500'000;
    for (int i = 0; i < 20 * passes; ++i) {
      line("op", 20'000, "kind=backward torch::autograd::AccumulateGrad");
      if (add) line("op", 15'000, "aten::add_");
      now += 20'000;
    }
    text += "step " + std::to_string(begin) + ".." + std::to_string(now) +
            " thread=0 number=" + std::to_string(step) + "\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(ZeroGradTest, FiresAndCountsTheAddsToo) {
  const Report report = Training(true, true);
  const Finding* finding = Find(report, "zero-grad-kernels");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NEAR(finding->gain.expected_ms, 20 * 0.025, 0.01);
  EXPECT_NE(finding->evidence.find("20 calls"), std::string::npos);
}

TEST(ZeroGradTest, StaysSilentWithSetToNone) {
  EXPECT_TRUE(IsClean(Training(false, false), "zero-grad-kernels"));
}

TEST(ZeroGradTest, StaysSilentWhereGradientsOnlyAccumulate) {
  EXPECT_TRUE(IsClean(Training(false, true, 2), "zero-grad-kernels"));
}

TEST(ZeroGradTest, LeavesTheAddsOfAccumulationAlone) {
  const Report report = Training(true, true, 4);
  ASSERT_NE(Find(report, "zero-grad-kernels"), nullptr);
  EXPECT_NEAR(Find(report, "zero-grad-kernels")->gain.expected_ms, 20 * 0.01,
              0.01);
}

TEST(ZeroGradTest, SeesLibTorchWhereNoRangeNamesTheZeroing) {
  EXPECT_TRUE(Promises(Training(true, true, 1, false), "zero-grad-kernels"));
}

TEST(ZeroGradTest, IgnoresAZeroedBufferThatIsNoGradient) {
  EXPECT_TRUE(IsClean(Training(true, false, 1, false), "zero-grad-kernels"));
}

// Python's ranges show which zeroing to count. A record_function() block zeroes
// a tensor of its own.
TEST(ZeroGradTest, IgnoresZeroingOutsideTheRanges) {
  CpuText text;
  for (int i = 0; i < 3; ++i) {
    text.Begin();
    text.Op("aten::empty", 10);
    text.EndRange("kind=optimizer Optimizer.zero_grad#SGD.zero_grad");
    for (int k = 0; k < 50; ++k) text.Op("aten::zero_", 300);
    text.Op("aten::mm", 10'000);
    text.Nested("kind=backward torch::autograd::AccumulateGrad", 500,
                "aten::add_", 400);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), "zero-grad-kernels"));
}

// Returns the gain when each sum frees gradients of 9 MB. The node takes
// `own_us` by itself.
double WonMs(int64_t own_us) {
  CpuText text;
  for (int i = 0; i < 3; ++i) {
    text.Begin();
    for (int k = 0; k < 4; ++k) text.Op("aten::zero_", 300);
    text.EndRange("kind=optimizer Optimizer.zero_grad#SGD.zero_grad");
    for (int k = 0; k < 4; ++k) {
      text.Op("aten::mkldnn_convolution_backward", 20'000);
      text.Nested("kind=backward torch::autograd::AccumulateGrad",
                  1000 + own_us, "aten::add_", 1000);
    }
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "zero-grad-kernels");
  return finding == nullptr ? -1 : finding->gain.expected_ms;
}

TEST(ZeroGradTest, CountsPagesThatAreReleasedAndFaultedAgain) {
  const double plain = WonMs(5);
  EXPECT_NEAR(plain, 4 * 1.3, 0.05);
  // 4 x 0.5 ms to release the pages, and four times as long to fault them in
  // again.
  EXPECT_NEAR(WonMs(505), plain + 4 * 0.5 * 5, 0.1);
  // Page faults are assumed to take at most half of the op that made the
  // gradient.
  EXPECT_NEAR(WonMs(5005), plain + 4 * (5 + 10), 0.1);
}

// --- unread-gradients

constexpr char kUnread[] = "unread-gradients";
constexpr char kFrozen[] = "float[64,32]", kTrained[] = "float[16,32]";

struct Distilling {
  bool frozen_first = true;  // the forward pass runs the frozen layer first
  bool through = true;       // else the frozen layer's input needs no gradient
  bool adds = false;         // backward adds to existing frozen gradients
  std::string frozen = kFrozen;
  std::string updated = kTrained;  // what the optimizer's first op updates
  std::string second = "";  // what another op updates in every second step
  std::string second_op = "aten::add_";
  bool copies = false;      // the first op updates a list and copies gradients
  std::string reader = "";  // an op that reads the frozen gradients
  std::string hook = "";    // an op inside their AccumulateGrad
  std::string head = "";    // first lines of the recording
  bool sizes = true;
  bool nested = false;  // the frozen node runs inside another one
  int passes = 1;
  int steps = 6;
};

// Steps of a frozen and a trained layer. Their backward nodes take 4 and 2 ms.
// In the frozen layer's node, 1 ms is the product for the gradient of its
// weight.
Report Distilled(const Distilling& o) {
  CpuText text(o.head);
  int64_t sequence = 0;
  const auto in = [&](const std::string& tensors) {
    return o.sizes ? "inputs=(" + tensors + ") " : std::string();
  };
  const auto forward = [&](const std::string& weight) {
    text.Op("sequence=" + std::to_string(sequence++) + " " +
                in("float[8,32]," + weight) + "aten::linear",
            1'000);
  };
  const auto backward = [&](int64_t number, const std::string& weight,
                            int64_t us, const std::string& inner) {
    const bool is_frozen = us == 4'000;
    text.Begin();
    const std::string node =
        "kind=backward sequence=" + std::to_string(number) + " ";
    if (is_frozen && o.nested) {
      text.Nested(
          node + "CheckpointFunctionBackward", us,
          "kind=backward " + in(weight) + "torch::autograd::AccumulateGrad",
          us - 10);
      return;
    }
    const std::string weight_op = in("float[64,8],float[8,32]") + "aten::mm";
    if (is_frozen && !o.frozen_first && o.through) {
      text.Nested(node + "AddmmBackward0", us, weight_op, 1'000,
                  in("float[8,64],float[64,32]") + "aten::mm", 1'500);
    } else {
      text.Nested(node + "AddmmBackward0", us, weight_op, 1'000);
    }
    const std::string kept = in(weight) + "torch::autograd::AccumulateGrad";
    if (inner.empty()) {
      // Kineto gives this node no sequence number, so that only the range
      // around it shows that it belongs to backward.
      text.Nested(
          "kind=backward autograd::engine::evaluate_function: "
          "torch::autograd::AccumulateGrad",
          20, kept, 15);
    } else {
      text.Nested("kind=backward " + kept, 20,
                  in(weight + "," + weight) + inner, 10);
    }
  };
  for (int i = 0; i < o.steps; ++i) {
    for (int pass = 0; pass < o.passes; ++pass) {
      const int64_t first = sequence;
      forward(o.frozen_first ? o.frozen : kTrained);
      forward(o.frozen_first ? kTrained : o.frozen);
      const std::string inner = !o.hook.empty() ? o.hook
                                : o.adds        ? "aten::add_"
                                                : "";
      for (int64_t number = first + 1; number >= first; --number) {
        if ((number == first) == o.frozen_first) {
          backward(number, o.frozen, 4'000, inner);
        } else {
          backward(number, kTrained, 2'000, pass > 0 ? "aten::add_" : "");
        }
      }
    }
    if (!o.reader.empty()) text.Op(in(o.frozen) + o.reader, 10);
    text.Begin();
    if (o.copies) {
      text.Inside(in(o.updated + "," + o.updated) + "aten::copy_", 30);
      text.Nested(in("TensorList(" + o.updated + ")") + "aten::_fused_sgd_",
                  100, in(o.updated) + "aten::contiguous", 60);
    }
    text.Op(in(o.updated + "," + o.updated) +
                (o.copies                    ? "aten::mean"
                 : o.updated == "TensorList" ? "aten::_foreach_add_"
                 : o.updated == "Tensor"     ? "FusedAdam"
                                             : "aten::add_"),
            100);
    if (!o.second.empty() && i % 2 == 0) {
      text.Op(in(o.second + "," + o.second) + o.second_op, 100);
    }
    text.EndRange("kind=optimizer Optimizer.step#SGD.step");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnreadGradientsTest, CountsAllBehindTheLastTrainedParameter) {
  const Report report = Distilled({});
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 4.02, 0.001);
  EXPECT_NE(finding->evidence.find("1 parameter that no optimizer updates "
                                   "([64, 32]; 8.2 kB), in every step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->evidence.find("never set to None"), std::string::npos);
  EXPECT_EQ(finding->where, "aten::linear");
  EXPECT_NE(finding->fix_python.find("in front of the first trained one"),
            std::string::npos);
}

TEST(UnreadGradientsTest, SaysThatGradientsAddUp) {
  const Report report = Distilled({.adds = true});
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("never set to None"), std::string::npos);
}

// The trained layer may get its gradient through the frozen layer, for example
// through the features of a perceptual loss.
TEST(UnreadGradientsTest, CountsOnlyTheWeightsOfALaterFrozenLayer) {
  const Report report = Distilled({.frozen_first = false});
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.02, 0.001);
  EXPECT_NE(finding->assumption.find("only the gradients of weights"),
            std::string::npos);
}

// A frozen layer without a gradient of its input passes nothing on, for example
// one that computes the features of a target image.
TEST(UnreadGradientsTest, CountsALayerThatPassesNoGradientOn) {
  const Report report = Distilled({.frozen_first = false, .through = false});
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4.02, 0.001);
  EXPECT_NE(finding->assumption.find("at best: gradients pass through"),
            std::string::npos);
}

// A teacher and a student may have weights of one size.
TEST(UnreadGradientsTest, CountsSuchALayerThatSharesItsSize) {
  Distilling o{.frozen_first = false,
               .through = false,
               .adds = true,
               .frozen = kTrained};
  const Report report = Distilled(o);
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4.02, 0.001);
  // A fused update of a channels-last weight copies the gradient inside.
  o.copies = true;
  EXPECT_TRUE(Promises(Distilled(o), kUnread));
}

TEST(UnreadGradientsTest, TreatsTheUpdateOfAnyOptimizerAsARead) {
  EXPECT_TRUE(IsClean(Distilled({.updated = "TensorList(float[64,32],"
                                            "float[16,32])"}),
                      kUnread));
  // Optimizers take turns, for example in a GAN.
  EXPECT_TRUE(IsClean(Distilled({.second = kFrozen}), kUnread));
}

TEST(UnreadGradientsTest, CountsTheRestOfParametersOfOneSize) {
  EXPECT_TRUE(Promises(Distilled({.adds = true, .frozen = kTrained}), kUnread));
  // The sizes do not show which of the two is updated, or both are.
  EXPECT_TRUE(IsClean(Distilled({.frozen = kTrained}), kUnread));
  EXPECT_TRUE(
      IsClean(Distilled({.adds = true, .frozen = kTrained, .second = kTrained}),
              kUnread));
}

// Other optimizers update as many tensors with other ops.
TEST(UnreadGradientsTest, OptimizersOfAllKindsCount) {
  for (const char* op : {"aten::_fused_adam_", "aten::_foreach_addcdiv_"}) {
    EXPECT_TRUE(IsClean(Distilled({.adds = true,
                                   .frozen = kTrained,
                                   .second = "TensorList(float[16,32])",
                                   .second_op = op}),
                        kUnread))
        << op;
  }
}

TEST(UnreadGradientsTest, GradientsOfSeveralPassesAddUp) {
  EXPECT_TRUE(IsClean(Distilled({.adds = true,
                                 .updated = "TensorList(float[64,32],"
                                            "float[16,32])",
                                 .passes = 3}),
                      kUnread));
  const Report report = Distilled({.passes = 3});
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 3 * 4.02, 0.001);
  EXPECT_NE(finding->evidence.find("1 parameter"), std::string::npos);
}

TEST(UnreadGradientsTest, TreatsAnyLaterOpAsARead) {
  EXPECT_TRUE(
      IsClean(Distilled({.reader = "aten::linalg_vector_norm"}), kUnread));
  EXPECT_TRUE(Promises(Distilled({.reader = "aten::zero_"}), kUnread));
}

TEST(UnreadGradientsTest, AllowsAHookToUpdateInBackward) {
  EXPECT_TRUE(IsClean(Distilled({.hook = "aten::addcdiv_"}), kUnread));
}

TEST(UnreadGradientsTest, AreNotKnownWithoutSizes) {
  EXPECT_NE(
      WhySkipped(Distilled({.updated = "TensorList", .sizes = false}), kUnread),
      "");
}

TEST(UnreadGradientsTest, AreNotKnownWhereRanksShareTheUpdate) {
  EXPECT_NE(WhySkipped(Distilled({.head = "range 1..2 thread=0 kind=collective "
                                          "FSDP::all_gather\n"}),
                       kUnread),
            "");
}

TEST(UnreadGradientsTest, AreNotKnownInNestedPasses) {
  EXPECT_NE(WhySkipped(Distilled({.nested = true}), kUnread), "");
}

// An optimizer that steps less often may not have been seen.
TEST(UnreadGradientsTest, AreAHintAfterTwoUpdates) {
  const Report report = Distilled({.steps = 2});
  ASSERT_NE(Find(report, kUnread), nullptr);
  EXPECT_EQ(Find(report, kUnread)->confidence, Confidence::kHint);
  EXPECT_EQ(Find(Distilled({.steps = 1}), kUnread), nullptr);
}

// PyTorch records no sizes for lists of more than 30 tensors, and some
// optimizers use their own kernels. Then gradients that are never cleared show
// that nobody reads them.
TEST(UnreadGradientsTest, AreSeenByMissingClearsWithoutSizesOfUpdates) {
  for (const char* update : {"TensorList", "Tensor"}) {
    EXPECT_TRUE(IsClean(Distilled({.updated = update}), kUnread)) << update;
    EXPECT_TRUE(Promises(Distilled({.adds = true, .updated = update}), kUnread))
        << update;
    EXPECT_TRUE(IsClean(
        Distilled({.adds = true, .updated = update, .reader = "aten::zero_"}),
        kUnread))
        << update;
    // Other gradients of this size are set to None.
    EXPECT_TRUE(Promises(
        Distilled({.adds = true, .frozen = kTrained, .updated = update}),
        kUnread))
        << update;
  }
}

// Clipping reads and scales gradients of all sizes.
TEST(UnreadGradientsTest, AreSeenByMissingClearsAmongGradientsOfOneSize) {
  EXPECT_TRUE(Promises(Distilled({.adds = true,
                                  .frozen = kTrained,
                                  .reader = "aten::linalg_vector_norm"}),
                       kUnread));
  EXPECT_TRUE(Promises(
      Distilled({.adds = true, .frozen = kTrained, .reader = "aten::mul_"}),
      kUnread));
  EXPECT_TRUE(IsClean(Distilled({.adds = true,
                                 .frozen = kTrained,
                                 .updated = "TensorList",
                                 .reader = "aten::zero_"}),
                      kUnread));
}

// Two tasks with one pass each, as with autograd.grad(): a pass returns the
// gradients of a shared layer [8, 4] and of three layers [16, 8] before it.
// Then `reads` take some of them, and a third pass trains all layers. A product
// in a node takes 1 ms. If `others`, another network's parameters keep no
// gradient.
Report Weighed(const std::vector<std::string>& reads, bool others = false) {
  const std::vector<std::string> weights = {"[8,4]", "[16,8]", "[16,8]",
                                            "[16,8]"};
  const std::vector<std::string> products = {
      "float[8,32],float[32,4]", "float[16,32],float[32,8]",
      "float[16,32],float[32,8]", "float[16,32],float[32,8]"};
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::sort", 10'000);
    for (int pass = 0; pass < 3; ++pass) {
      for (int i = 0; i < 4; ++i) {
        text.Nested("kind=backward sequence=" +
                        std::to_string(100 * step + 10 * pass + 4 - i) +
                        " autograd::engine::evaluate_function: AddmmBackward0",
                    1'010, "inputs=(" + products[i] + ") aten::mm", 1'000);
        if (pass == 2) {
          text.Op("kind=backward inputs=(float" + weights[i] +
                      ") torch::autograd::AccumulateGrad",
                  10);
        }
      }
      for (const std::string& read : reads) {
        if (pass < 2) text.Op("inputs=(float" + read + ") aten::norm", 10);
      }
    }
    text.Begin();
    for (const std::string& weight : weights) {
      text.Op("inputs=(float" + weight + ",float" + weight + ") aten::add_",
              10);
    }
    for (int i = 0; others && i < 3; ++i) {
      text.Op("inputs=(float[16,8],float[16,8]) aten::add_", 10);
    }
    text.EndRange("kind=optimizer Optimizer.step#SGD.step");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(UnreadGradientsTest, CountReturnedGradientsThatNobodyUses) {
  const Report report = Weighed({"[8,4]"});
  const Finding* finding = Find(report, "unread-gradients");
  ASSERT_NE(finding, nullptr);
  // Saves three nodes in two passes.
  EXPECT_NEAR(finding->gain.expected_ms, 6.06, 0.05);
  EXPECT_NE(finding->evidence.find("2 times per step, compute gradients of 3 "
                                   "weights that nothing uses"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.autograd.grad"), std::string::npos);
  EXPECT_TRUE(IsClean(Weighed({"[8,4]", "[16,8]"}), "unread-gradients"));
  // The recording does not show who reads the gradients; or the program sets
  // p.grad = g for an optimizer.
  EXPECT_TRUE(IsClean(Weighed({}), "unread-gradients"));
  EXPECT_TRUE(IsClean(Weighed({"[8,4]"}, true), "unread-gradients"));
}

}  // namespace
}  // namespace stepscope::gradients_test
