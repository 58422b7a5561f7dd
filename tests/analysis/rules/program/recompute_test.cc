#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::recompute_test {
namespace {

struct How {
  bool on_gpu = false;
  bool gradients = true;  // the ops in the backward pass record nodes
  bool same = true;       // they are the forward pass's ops
  int used_gb = 0;        // of 80 GiB; 0: not recorded
  int part_gb = 0;        // memory that a recomputed part holds
  int parts = 1;
  double around_us = 0;   // between the node's start and its first op
  double keeping_us = 0;  // before and after the op that keeps the inputs
};

class Checkpointed {
 public:
  explicit Checkpointed(How how) : how_(how) {}

  Report Analyzed() {
    for (int step = 0; step < 4; ++step) {
      if (how_.keeping_us > 0) {
        Op("aten::mm", 1000, "");
        text_.Pass(how_.keeping_us);
        Op("aten::empty", 1, "");
        Op("_NoopSaveInputs", 10, "");
        text_.Pass(how_.keeping_us);
      }
      Block(false);
      if (how_.used_gb > 0) Memory(how_.used_gb);
      for (int part = 0; part < how_.parts; ++part) Again();
      if (how_.used_gb > 0) Memory(10);
      text_.Pass(1);
      text_.EndStep();
    }
    return text_.Analyzed();
  }

 private:
  void Again() {
    const int64_t least = how_.used_gb - how_.part_gb;
    if (how_.part_gb > 0) Memory(least);
    text_.Begin();
    text_.Pass(how_.around_us);
    Block(true);
    if (how_.part_gb > 0) Memory(how_.used_gb);
    Op("aten::mm", 4000, "");
    text_.End(
        "autograd::engine::evaluate_function: "
        "CheckpointFunctionBackward",
        "", 0, "kind=backward sequence=" + std::to_string(sequence_));
    sequence_ += 10;
  }
  void Op(const std::string& name, double us, const std::string& fields) {
    const std::string inputs = "(float[64,64],float[64,64])";
    if (how_.on_gpu) {
      text_.Op(name, inputs, {{"a kernel", us}}, 10, fields);
    } else {
      text_.Op(name, inputs, {}, us, fields);
    }
  }
  void Block(bool again) {
    int at = sequence_ + (again ? 4 : 0);
    const auto fields = [&] {
      ++at;
      return again && !how_.gradients ? std::string()
                                      : "sequence=" + std::to_string(at);
    };
    Op("aten::mm", 1000, fields());
    Op(again && !how_.same ? "aten::tanh_backward" : "aten::tanh", 500,
       fields());
    Op("aten::mm", 1000, fields());
  }
  void Memory(int64_t gb) {
    text_.Line("allocation " + std::to_string(text_.now_ns()) +
               " thread=0 device=0 device_type=1 bytes=1024 address=64 "
               "total_allocated_bytes=" +
               std::to_string(gb * 1'000'000'000));
  }

  How how_;
  ComputeText text_;
  int sequence_ = 0;
};

Report Of(How how) { return Checkpointed(how).Analyzed(); }

TEST(RecomputeCostTest, IsAtMostTheRecomputedOps) {
  for (const bool on_gpu : {false, true}) {
    const Report report = Of({.on_gpu = on_gpu});
    const Finding* finding = Find(report, "recompute-cost");
    ASSERT_NE(finding, nullptr) << on_gpu;
    EXPECT_EQ(finding->gain_kind, GainKind::kBound);
    EXPECT_EQ(finding->confidence, Confidence::kHint);
    EXPECT_NEAR(finding->gain.expected_ms, 2.5, 0.01);
    EXPECT_NE(finding->evidence.find("whether memory is free"),
              std::string::npos);
  }
}

// Restoring the inputs is saved as well. On a GPU, only kernels count.
TEST(RecomputeCostTest, CountsTheCodeAroundTheOps) {
  EXPECT_NEAR(Find(Of({.around_us = 400}), "recompute-cost")->gain.expected_ms,
              2.9, 0.01);
  EXPECT_NEAR(Find(Of({.on_gpu = true, .around_us = 400}), "recompute-cost")
                  ->gain.expected_ms,
              2.5, 0.01);
}

// Code in the forward pass that keeps the inputs is also saved.
TEST(RecomputeCostTest, CountsTheCodeThatKeepsTheInputs) {
  EXPECT_NEAR(Find(Of({.keeping_us = 200}), "recompute-cost")->gain.expected_ms,
              2.5 + 0.4 + 0.011, 0.005);
}

// torch.compile of each block: its ops have no sequence numbers.
TEST(RecomputeCostTest, SeesCompiledRegionsThatRunAgain) {
  const auto of = [](const std::string& again) {
    ComputeText text;
    int sequence = 0;
    const auto region = [&](const std::string& name) {
      text.Begin();
      text.Op("aten::mm", "(float[64,64],float[64,64])", {}, 1'000, "");
      text.Op("triton_poi_fused_add_0", "", {}, 500, "");
      text.End(name, "", 0, "sequence=" + std::to_string(sequence));
    };
    for (int step = 0; step < 4; ++step) {
      region("CompiledFunction");
      text.Begin();
      const int node = sequence;
      ++sequence;
      region(again);
      text.Op("aten::mm", "(float[64,64],float[64,64])", {}, 4'000, "");
      text.End("CompiledFunctionBackward", "", 0,
               "kind=backward sequence=" + std::to_string(node));
      ++sequence;
      text.Pass(1);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report report = of("CompiledFunction");
  const Finding* finding = Find(report, "recompute-cost");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.5, 0.01);
  EXPECT_TRUE(IsClean(of("AnotherFunction"), "recompute-cost"));
}

TEST(RecomputeCostTest, IgnoresGradientsOfGradients) {
  EXPECT_TRUE(IsClean(Of({.same = false}), "recompute-cost"));
}

TEST(RecomputeCostTest, IgnoresBackwardOpsWithoutSequenceNumbers) {
  EXPECT_TRUE(IsClean(Of({.gradients = false}), "recompute-cost"));
}

TEST(RecomputeCostTest, StaysSilentOnAFullDevice) {
  EXPECT_NE(Find(Of({.on_gpu = true, .used_gb = 40}), "recompute-cost"),
            nullptr);
  EXPECT_TRUE(IsClean(Of({.on_gpu = true, .used_gb = 78}), "recompute-cost"));
}

// With 40 GB in use, 90 % of the device may be filled. Keeping four parts of 20
// GB needs 60 GB more, because the peak already includes one part.
TEST(RecomputeCostTest, PredictsForThePartsThatFitIntoMemory) {
  const Report all =
      Of({.on_gpu = true, .used_gb = 40, .part_gb = 10, .parts = 4});
  EXPECT_NEAR(Find(all, "recompute-cost")->gain.expected_ms, 10, 0.01);
  const Report some =
      Of({.on_gpu = true, .used_gb = 40, .part_gb = 20, .parts = 4});
  const Finding* finding = Find(some, "recompute-cost");
  ASSERT_NE(finding, nullptr);
  // The device has 80 GiB, that is 85.9 GB.
  EXPECT_NEAR(finding->gain.expected_ms, 10 * (0.9 * 85.9 - 40) / 60, 0.05);
  EXPECT_NE(finding->evidence.find("takes 60.0 GB more"), std::string::npos)
      << finding->evidence;
}

// Steps of a loss that caches gradients: a model of `layers` layers runs on two
// mini-batches without gradients, and a hook of an AccumulateGrad node runs it
// on them again, each time with a backward pass. The hook also multiplies by
// the cached gradients. A layer takes 100 us, its node 150 us.
Report Caching(int layers, bool same = true) {
  ComputeText text;
  int sequence = 0;
  const auto layer = [&](int i, bool again) {
    const std::string width = std::to_string(64 + i + (same || !again ? 0 : 1));
    text.Op("aten::addmm", "(float[16," + width + "],float[" + width + ",64])",
            {}, 100, again ? "sequence=" + std::to_string(++sequence) : "");
  };
  const auto model = [&](bool again) {
    for (int i = 0; i < layers; ++i) layer(i, again);
  };
  for (int step = 0; step < 4; ++step) {
    model(false);
    model(false);
    text.Op("aten::mm", "(float[32,64],float[64,32])", {}, 50);
    text.Begin();
    for (int batch = 0; batch < 2; ++batch) {
      model(true);
      text.Op("aten::dot", "(float[1024],float[1024])", {}, 20,
              "sequence=" + std::to_string(++sequence));
      for (int i = 0; i < layers; ++i) {
        text.Op("autograd::engine::evaluate_function: AddmmBackward0", "", {},
                150, "kind=backward sequence=" + std::to_string(sequence - i));
      }
    }
    text.End(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "", 0, "kind=backward");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(RecomputeCostTest, SeesAHookThatRunsTheModelAgain) {
  const Report report = Caching(8);
  const Finding* finding = Find(report, "recompute-cost");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("A hook runs the model on mini-batches"),
            std::string::npos);
  EXPECT_NE(finding->fix_python.find("MultipleNegativesRankingLoss"),
            std::string::npos);
  // The hook takes 2 * (8 * 0.25 + 0.02) ms, of which one mini-batch remains.
  EXPECT_NEAR(finding->gain.expected_ms, 2.02, 0.2);
  // Fewer products may be alike by chance, and another model is no repetition.
  EXPECT_TRUE(IsClean(Caching(3), "recompute-cost"));
  EXPECT_TRUE(IsClean(Caching(8, false), "recompute-cost"));
}

}  // namespace
}  // namespace stepscope::recompute_test
