#include "rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::batch_test {
namespace {

struct Run {
  std::string filling = "blocks_per_sm=0.25";
  double held_gb = 2;
  double peak_gb = 12;
  double host_us = 600;
  std::string name = "my_kernel";
  double other_us = 0;  // time of kernels that fill the device
  bool backward = false;
  bool optimizer = false;
};
Report With(const Run& run) {
  ComputeText text;
  const auto memory = [&](double gb, double change) {
    text.Line("allocation " + std::to_string(text.now_ns()) +
              " thread=0 device_type=1 device=0 bytes=" +
              std::to_string(static_cast<int64_t>(change * 1e9)) +
              " total_allocated_bytes=" +
              std::to_string(static_cast<int64_t>(gb * 1e9)));
  };
  for (int i = 0; i < 3; ++i) {
    if (run.peak_gb > 0) memory(run.held_gb, 1e-6);
    text.Pass(1);
    if (run.peak_gb > 0) memory(run.peak_gb, run.peak_gb - run.held_gb);
    text.Op("aten::x", "", {{run.name, 1'000, run.filling}}, run.host_us);
    if (run.other_us > 0) {
      text.Op("aten::y", "", {{"other", run.other_us, "blocks_per_sm=4"}});
    }
    if (run.backward) text.Op("AddBackward0", "", {}, 1, "kind=backward");
    if (run.optimizer) {
      text.Begin();
      text.Pass(1);
      text.EndRange("Optimizer.step#SGD.step", "optimizer");
    }
    if (run.peak_gb > 0) memory(run.held_gb, run.held_gb - run.peak_gb);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(SmallBatchTest, FiresWhereKernelsDoNotFillTheDevice) {
  const Report report = With({});
  const Finding* finding = Find(report, "small-batch");
  ASSERT_NE(finding, nullptr) << WhySkipped(report, "small-batch");
  // (0.9 * 85.9 - 2) / 10 is 7.5, so the batch may grow by 4. The kernel then
  // takes as long for four times the samples.
  EXPECT_NE(finding->fix_python.find("by 4:"), std::string::npos);
  EXPECT_NEAR(finding->gain.expected_ms, 0.75, 0.03);
  EXPECT_NEAR(finding->speedup, 4, 0.3);
}

TEST(SmallBatchTest, SpeaksOfRequestsWhereNothingIsTrained) {
  const Report report = With({});
  const Finding* runs = Find(report, "small-batch");
  ASSERT_NE(runs, nullptr);
  EXPECT_NE(runs->fix_python.find("several inputs or requests"),
            std::string::npos);
  EXPECT_EQ(runs->fix_python.find("learning rate"), std::string::npos);
  EXPECT_NE(runs->assumption.find("only runs the model"), std::string::npos);
  EXPECT_NE(runs->wrong_if.find("request"), std::string::npos);
  // A single sign of training is enough.
  for (const bool backward : {true, false}) {
    const Report training =
        With({.backward = backward, .optimizer = !backward});
    const Finding* trains = Find(training, "small-batch");
    ASSERT_NE(trains, nullptr);
    EXPECT_NE(trains->fix_python.find("learning rate"), std::string::npos);
    EXPECT_EQ(trains->assumption.find("only runs the model"),
              std::string::npos);
    EXPECT_NE(trains->wrong_if.find("converges"), std::string::npos);
  }
}

// hipExtModuleLaunchKernel takes the grid in work items, not in work groups.
TEST(SmallBatchTest, CountsTheWorkGroupsOfHipsGrids) {
  const auto with = [](const std::string& call) {
    std::string text =
        "device ordinal=0 memory_bytes=85899345920 sm_count=304 MI300X\n";
    for (int i = 0; i < 3; ++i) {
      const int64_t at = i * 2'000'000;
      const std::string id = std::to_string(i + 1);
      const auto span = [&](int64_t from, int64_t to) {
        return std::to_string(at + from) + ".." + std::to_string(at + to);
      };
      text += "step " + span(0, 2'000'000) + " thread=0 number=" + id +
              "\nop " + span(500, 6'000) + " thread=0 aten::mm" +
              "\nruntime_call " + span(1'000, 5'000) +
              " thread=0 correlation=" + id + " " + call + "\nkernel " +
              span(10'000, 1'900'000) + " stream=0 correlation=" + id +
              " grid=16384,1,1 block=256,1,1 Cijk_Ailk_Bjlk_BBS_BH_MT64x64\n"
              "allocation " +
              std::to_string(at + 100) +
              " thread=0 device_type=1 device=0 bytes=1000000 "
              "total_allocated_bytes=2000000000\n"
              "allocation " +
              std::to_string(at + 1'900'000) +
              " thread=0 device_type=1 device=0 bytes=-1000000 "
              "total_allocated_bytes=1000000000\n";
    }
    return Analyze(TraceFromText(text));
  };
  // 64 work groups on 304 compute units do not fill the device.
  EXPECT_NE(Find(with("hipExtModuleLaunchKernel"), "small-batch"), nullptr)
      << WhySkipped(with("hipExtModuleLaunchKernel"), "small-batch");
  EXPECT_TRUE(IsClean(with("hipModuleLaunchKernel"), "small-batch"));
}

TEST(SmallBatchTest, StaysSilentBelowThirtyPercent) {
  EXPECT_TRUE(IsClean(With({.other_us = 2'400}), "small-batch"));
  EXPECT_FALSE(IsClean(With({.other_us = 2'300}), "small-batch"));
}

TEST(SmallBatchTest, StaysSilentWhereNoLargerBatchFits) {
  // Memory must have room for twice what a batch takes.
  EXPECT_TRUE(IsClean(With({.peak_gb = 40.0}), "small-batch"));
  EXPECT_FALSE(IsClean(With({.peak_gb = 39.0}), "small-batch"));
}

TEST(SmallBatchTest, LeavesCollectivesOut) {
  EXPECT_TRUE(IsClean(With({.name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL()",
                            .other_us = 100}),
                      "small-batch"));
}

TEST(SmallBatchTest, CannotLookWithoutMemoryEvents) {
  EXPECT_NE(WhySkipped(With({.peak_gb = 0}), "small-batch"), "");
}

TEST(SmallBatchTest, IsCleanWhereTheDeviceIsFull) {
  EXPECT_TRUE(IsClean(With({.filling = "blocks_per_sm=8", .peak_gb = 0}),
                      "small-batch"));
}

// A step with `grows_us` of work that grows with the batch and `fixed_us` in
// the optimizer.
Report OnCpu(int64_t grows_us, int64_t fixed_us, int64_t reduce_us = 0) {
  CpuText text("loader kind=in-process workers=0 batch_size=32 train\n");
  for (int i = 0; i < 4; ++i) {
    text.Op("aten::mm", grows_us);
    if (reduce_us > 0) text.Op("c10d::allreduce_", reduce_us);
    text.Begin();
    text.Op("aten::add_", fixed_us);
    text.EndRange("kind=phase optimizer");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(SmallBatchTest, OnACpuSpreadsTheFixedCostOfABatch) {
  const Report report = OnCpu(80'000, 20'000);
  const Finding* finding = Find(report, "small-batch");
  ASSERT_NE(finding, nullptr);
  // Of the fixed 20 ms, a quarter remains per 32 samples.
  EXPECT_NEAR(finding->gain.expected_ms, 15, 0.1);
  EXPECT_EQ(finding->settings,
            (std::vector<Setting>{{"batch_size", int64_t{128}}}));
}

TEST(SmallBatchTest, OnACpuADoublingMustSaveFourPercent) {
  // Doubling the batch saves half of the fixed time.
  EXPECT_TRUE(IsClean(OnCpu(92'500, 7'500), "small-batch"));
  const Report report = OnCpu(91'000, 9'000);
  const Finding* finding = Find(report, "small-batch");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->settings,  // a second doubling saves 2 of 95 ms
            (std::vector<Setting>{{"batch_size", int64_t{64}}}));
}

TEST(SmallBatchTest, CannotTellWhatOtherRanksNeedForALargerOne) {
  EXPECT_NE(WhySkipped(OnCpu(80'000, 20'000, 3'200), "small-batch"), "");
  EXPECT_NE(Find(OnCpu(80'000, 20'000, 2'900), "small-batch"), nullptr);
}

TEST(SmallBatchTest, IgnoresWaitsForOtherRanks) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    text.Op("aten::mm", 20'000);
    text.Op("c10d::allreduce_", 80'000);
    text.Begin();
    text.Op("aten::add_", 1'000);
    text.EndRange("kind=phase optimizer");
    text.EndStep();
  }
  const Report report = text.Analyzed();
  EXPECT_EQ(Find(report, "small-batch"), nullptr);
}

// Four products of `rows` rows take 500 us each. 100 small ops follow, each
// with `gap_us` of framework code after it.
Report Products(int rows, int64_t gap_us) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 4; ++k) {
      text.Op("inputs=(float[" + std::to_string(rows) +
                  ",1024],float[1024,1024]) aten::mm",
              500);
    }
    for (int k = 0; k < 100; ++k) text.Op("aten::relu", 10, gap_us);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(SmallBatchTest, OnACpuSeesASmallBatchByTheWeightsMoved) {
  const Report report = Products(4, 1);
  const Finding* finding = Find(report, "small-batch");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kMedium);
  EXPECT_NE(finding->evidence.find("1.33 ms move weights"), std::string::npos)
      << finding->evidence;
}

// 32 products of four rows: all with the same weights, as for the positions of
// a sequence, or with the weights of 32 layers.
Report InALoop(bool layers) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    const auto numbered = [&](int k) {
      return "sequence=" + std::to_string(100 * i + k + 1) + " ";
    };
    for (int k = 0; k < 32; ++k) {
      text.Op(numbered(k) +
                  "inputs=(float[1024],float[4,1024],float[1024,1024]) "
                  "aten::addmm",
              500);
      text.Op("inputs=(float[4,1024],float[4,1024]) aten::add", 10);
      text.Op("inputs=(float[4,1024]) aten::tanh", 10);
    }
    text.Op("aten::sum", 10);
    const auto accumulate = [&] {
      text.Op(
          "kind=backward inputs=(float[1024,1024]) "
          "torch::autograd::AccumulateGrad",
          5);
    };
    for (int k = 31; k >= 0; --k) {
      text.Op("kind=backward " + numbered(k) + "AddmmBackward0", 20);
      if (layers) accumulate();
    }
    if (!layers) accumulate();
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(SmallBatchTest, OnACpuIgnoresWeightsMovedByALoop) {
  const Report layers = InALoop(true), loop = InALoop(false);
  ASSERT_NE(Find(layers, "small-batch"), nullptr);
  EXPECT_EQ(Find(layers, "small-batch")->severity, FindingSeverity::kMedium);
  EXPECT_NE(Find(loop, "rnn-in-python"), nullptr)
      << WhySkipped(loop, "rnn-in-python");
  const Finding* finding = Find(loop, "small-batch");
  if (finding != nullptr) {
    EXPECT_EQ(finding->severity, FindingSeverity::kNote);
  }
}

TEST(SmallBatchTest, OnACpuIgnoresCodeBetweenOps) {
  const Report report = Products(64, 40);
  const Finding* finding = Find(report, "small-batch");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
}

}  // namespace
}  // namespace stepscope::batch_test
