#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::micro_batches_test {
namespace {

constexpr const char* kRule = "small-micro-batches";
constexpr const char* kWeight = "c10::BFloat16[4096,4096]";

// Four micro-batches per step. For each, a product of 512 rows takes 100 us (as
// long as reading its weight), a cast of the weight 60 us, and adding the
// gradient to the previous one 80 us.
struct How {
  int passes = 4;
  int64_t activations_gb = 2;  // per micro-batch; 0: not recorded
  int untrained = 0;           // weights whose gradients nobody reads or clears
  int optimizers = 1;          // that step once per step
};

class Steps {
 public:
  explicit Steps(const How& how) : how_(how) {
    for (int step = 0; step < 4; ++step) {
      for (int pass = 0; pass < how.passes; ++pass) Pass(pass > 0);
      Memory(20);
      for (int i = 0; i < how.optimizers; ++i) {
        text_.Pass(1);
        text_.Begin();
        text_.Op("aten::_fused_adamw_", "",
                 {{"multi_tensor_apply_kernel", 200}});
        text_.EndRange("Optimizer.step#AdamW.step", "optimizer");
      }
      text_.EndStep();
    }
  }
  Report Analyzed() const { return text_.Analyzed(); }

 private:
  void Pass(bool adds) {
    Memory(20);
    const std::string weight = kWeight;
    text_.Op("aten::copy_", "(" + weight + ",float[4096,4096])",
             {{"copy", 60}});
    text_.Op("aten::mm", "(c10::BFloat16[512,4096]," + weight + ")",
             {{"ampere_bf16_s16816gemm_bf16_128x128", 100}}, 10,
             "sequence=" + std::to_string(sequence_));
    Memory(20 + how_.activations_gb);
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    text_.Op("aten::mm", "(c10::BFloat16[4096,512],c10::BFloat16[512,4096])",
             {{"ampere_bf16_s16816gemm_bf16_128x128", 100}});
    const std::string fields =
        "kind=backward sequence=" + std::to_string(sequence_++);
    text_.End("MmBackward0", "", 0, fields);
    text_.End("autograd::engine::evaluate_function: MmBackward0", "", 0,
              fields);
    Keep(adds);
    for (int i = 0; i < how_.untrained; ++i) Keep(true);
  }
  void Keep(bool adds) {
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    if (adds) {
      text_.Op(
          "aten::add_", "(float[4096,4096],float[4096,4096])",
          {{"void at::native::vectorized_elementwise_kernel<4, add>", 80}});
    }
    text_.End("torch::autograd::AccumulateGrad", "(float[4096,4096])");
    text_.End(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "", 0, "kind=backward");
  }
  void Memory(int64_t gb) {
    if (how_.activations_gb == 0) return;
    text_.Line("allocation " + std::to_string(text_.now_ns()) +
               " thread=0 device=0 device_type=1 bytes=1024 address=64 "
               "total_allocated_bytes=" +
               std::to_string(gb * 1'000'000'000));
  }

  How how_;
  ComputeText text_;
  int sequence_ = 0;
};

Report Of(const How& how) { return Steps(how).Analyzed(); }

TEST(MicroBatchesTest, AdvisesLargerMicroBatchesIfMemoryIsFree) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Saves all three sums and three of four casts; the products also gain.
  EXPECT_GE(finding->gain.expected_ms, 3 * 0.08 + 3 * 0.06);
  EXPECT_NE(finding->evidence.find("over 4 micro-batches per step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("no accumulation is left"),
            std::string::npos);
}

TEST(MicroBatchesTest, StaysSilentIfMemoryIsFull) {
  EXPECT_TRUE(IsClean(Of({.activations_gb = 40}), kRule));
  // Memory suffices for merging two micro-batches, but not all four.
  const Report report = Of({.activations_gb = 25});
  EXPECT_EQ(Find(report, kRule)->fix_python.find("no accumulation is left"),
            std::string::npos);
  EXPECT_EQ(Find(Of({.activations_gb = 0}), kRule)->confidence,
            Confidence::kHint);
}

TEST(MicroBatchesTest, StaysSilentOnOnePass) {
  EXPECT_TRUE(IsClean(Of({.passes = 1}), kRule));
}

// A program that trains a part of a network, and clears only the gradients of
// that part, adds to the others.
TEST(MicroBatchesTest, CountsPassesRatherThanSums) {
  EXPECT_TRUE(IsClean(Of({.passes = 1, .untrained = 3}), kRule));
  for (int optimizers : {1, 2}) {
    const Report report = Of({.untrained = 3, .optimizers = optimizers});
    const Finding* finding = Find(report, kRule);
    ASSERT_NE(finding, nullptr);
    EXPECT_NE(finding->evidence.find("over 4 micro-batches per step"),
              std::string::npos)
        << finding->evidence;
  }
}

// CPU-only steps of eight backward passes before each update.
struct CpuHow {
  int passes = 8;
  int rows = 4;
  bool forwards = true;  // each pass has a forward pass of its own
  bool updates = false;  // and an update
  bool adds = true;      // all passes but the first add to the gradients
  bool hooks = false;    // of modules
};
Report OnCpu(const CpuHow& how) {
  CpuText text;
  int64_t sequence = 0;
  for (int step = 0; step < 4; ++step) {
    for (int pass = 0; pass < how.passes; ++pass) {
      const std::string number = "sequence=" + std::to_string(sequence++) + " ";
      if (pass == 0 || how.forwards) {
        text.Op(number + "inputs=(float[" + std::to_string(how.rows) +
                    ",64],float[32,64]) aten::linear",
                1'000);
      }
      if (how.hooks) text.Op("kind=backward BackwardHookFunctionBackward", 10);
      text.Op("kind=backward " + number + "AddmmBackward0", 2'000);
      if (pass > 0 && how.adds) {
        text.Nested(
            "kind=backward inputs=(float[32,64]) "
            "torch::autograd::AccumulateGrad",
            20, "inputs=(float[32,64],float[32,64]) aten::add_", 10);
      } else {
        text.Op(
            "kind=backward inputs=(float[32,64]) "
            "torch::autograd::AccumulateGrad",
            20);
      }
      if (!how.updates && pass + 1 < how.passes) continue;
      text.Begin();
      text.Op("aten::_fused_sgd_", 100);
      text.EndRange("kind=optimizer Optimizer.step#SGD.step");
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(MicroBatchesTest, AdvisesLargerBatchesOnACpu) {
  const Report report = OnCpu({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kMedium);
  // One of eight passes remains.
  EXPECT_NEAR(finding->gain.expected_ms, 7 * 3.02, 0.01);
  EXPECT_NE(finding->evidence.find("follows 8 backward passes of the same "
                                   "network, whose products take 4 rows each"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(Find(OnCpu({.passes = 4}), kRule)->severity, FindingSeverity::kLow);
  // Such products may keep the cores busy.
  EXPECT_EQ(Find(OnCpu({.rows = 512}), kRule)->severity, FindingSeverity::kLow);
}

TEST(MicroBatchesTest, NeedsPassesThatAddUpGradientsOnACpu) {
  EXPECT_TRUE(IsClean(OnCpu({.passes = 3}), kRule));
  // The losses of several tasks.
  EXPECT_TRUE(IsClean(OnCpu({.forwards = false}), kRule));
  // The mini-batches of PPO.
  EXPECT_TRUE(IsClean(OnCpu({.updates = true}), kRule));
  // The calls of LBFGS, or the members of an ensemble.
  EXPECT_TRUE(IsClean(OnCpu({.adds = false}), kRule));
  // Opacus adds up gradients in hooks.
  EXPECT_NE(Find(OnCpu({.adds = false, .hooks = true}), kRule), nullptr);
}

}  // namespace
}  // namespace stepscope::micro_batches_test
