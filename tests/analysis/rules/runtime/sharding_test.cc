#include "analysis/rules/rule_testing.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"

namespace stepscope::sharding_test {
namespace {

// Five steps of four layers. Each gathers its shards, computes for 1 ms, and in
// backward gathers again, computes and scatters. `gather_us` of each gather
// are exposed, because the computing waits for it.
Report Sharded(double gather_us, const std::string& mark, int world_size = 8) {
  GpuText run;
  run.Line("run world_size=" + std::to_string(world_size));
  const auto collective = [&](const char* name, double us) {
    run.Begin("op", "c10d::_allgather_base_");
    run.OnStream(20);
    run.Kernel(us, name);
    run.OnStream(7);
    run.End();
    run.Synchronize("cudaEventSynchronize");
  };
  const auto compute = [&] {
    run.Begin("op", "aten::mm");
    run.Kernel(1000, "gemm");
    run.End();
    run.Synchronize("cudaEventSynchronize");
  };
  for (int step = 0; step < 5; ++step) {
    for (int layer = 0; layer < 4; ++layer) {
      run.Begin("range", mark);
      collective("ncclDevKernel_AllGather_RING_LL", gather_us);
      compute();
      run.End();
    }
    for (int layer = 0; layer < 4; ++layer) {
      run.Begin("op", "MmBackward0", "kind=backward");
      collective("ncclDevKernel_AllGather_RING_LL", gather_us);
      compute();
      collective("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", 10);
      run.End();
    }
    run.EndStep();
  }
  return run.Analyzed();
}
constexpr const char* kMark = "FSDP::pre_forward (layers)";

TEST(FsdpExposedTest, FiresAndSaysThatShardsAreGatheredTwice) {
  const Report report = Sharded(300, kMark);
  const Finding* finding = Find(report, "fsdp-exposed");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("8 all-gathers and 4 reduce-scatters"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("gathered again in backward"),
            std::string::npos);
  EXPECT_NE(finding->fix_python.find("reshard_after_forward=False"),
            std::string::npos);
  EXPECT_EQ(Find(report, "exposed-collective"), nullptr);
}

TEST(FsdpExposedTest, StaysSilentBelowThreePerCentOfTheStep) {
  // Steps of 8 ms and a little: 3 % are 0.25 ms.
  EXPECT_TRUE(IsClean(Sharded(20, kMark), "fsdp-exposed"));
  EXPECT_FALSE(IsClean(Sharded(40, kMark), "fsdp-exposed"));
}

// A rank on a CPU: 6.8 of the 20 ms of a step wait for shards. Its process uses
// `busy_ms` of processor time per step; not recorded if negative.
Report OverGloo(const std::string& run = "", int busy_ms = -1,
                int threads = 1) {
  std::string rows = "run world_size=2 " + run + "\n";
  for (int step = 0; step < 5; ++step) {
    const int64_t base = step * 20'000;
    const auto span = [base](int64_t begin_us, int64_t end_us) {
      return std::to_string((base + begin_us) * 1000) + ".." +
             std::to_string((base + end_us) * 1000) + " ";
    };
    rows += "step " + span(0, 20'000) +
            "thread=0 number=" + std::to_string(step) + "\n";
    rows += "range " + span(0, 2'000) + "thread=0 FSDP::all_gather\n";
    rows += "op " + span(0, 100) + "thread=0 c10d::_allgather_base_\n";
    rows += "range " + span(100, 2'000) +
            "thread=1 kind=collective gloo:all_gather\n";
    rows += "op " + span(2'000, 10'000) + "thread=0 aten::mm\n";
    rows += "op " + span(10'000, 15'000) +
            "thread=0 kind=backward PostBackwardBackward\n";
    rows +=
        "op " + span(10'000, 10'100) + "thread=0 c10d::_reduce_scatter_base_\n";
    rows += "range " + span(10'100, 15'000) +
            "thread=1 kind=collective gloo:all_reduce\n";
    rows += "op " + span(15'000, 15'100) + "thread=0 c10d::allreduce_\n";
    rows += "range " + span(15'100, 15'200) +
            "thread=1 kind=collective gloo:all_reduce\n";
    rows += "op " + span(15'200, 20'000) + "thread=0 aten::mm\n";
    if (busy_ms >= 0) {
      rows += "settings " + std::to_string(base * 1000) +
              " step=" + std::to_string(step) +
              " intra_op_threads=" + std::to_string(threads) +
              "\nhost_usage " + span(0, 20'000) +
              "step=" + std::to_string(step) + " process_cpu_ns=" +
              std::to_string(busy_ms * 1'000'000) + "\n";
    }
  }
  return Analyze(TraceFromText(rows));
}

// gloo has no reduce-scatter of its own: it reduces everything everywhere.
TEST(FsdpExposedTest, AnAllReduceOfGloosMayBeAReduceScatter) {
  const Report report = OverGloo();
  const Finding* finding = Find(report, "fsdp-exposed");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("1 all-gather and 1 reduce-scatter of"),
            std::string::npos)
      << finding->evidence;
}

// Two ranks on two cores: 4 ms of each core are idle, and nothing else can hide
// what the cores do themselves.
TEST(FsdpExposedTest, OnACpuOnlyIdleTimeCanBeGained) {
  const std::string filled = "usable_cores=2 local_ranks=2";
  const auto gain_ms = [](const Report& report) {
    const Finding* finding = Find(report, "fsdp-exposed");
    return finding == nullptr ? 0 : finding->gain.expected_ms;
  };
  const Report report = OverGloo(filled, 16);
  EXPECT_NEAR(gain_ms(report), 4, 1e-6);
  EXPECT_NE(Find(report, "fsdp-exposed")->evidence.find("is idle for 4.00 ms"),
            std::string::npos)
      << Find(report, "fsdp-exposed")->evidence;
  const double all = gain_ms(OverGloo());
  EXPECT_GT(all, 6);
  // Half idle; a core to spare; threads that may spin while they wait.
  EXPECT_EQ(gain_ms(OverGloo(filled, 10)), all);
  EXPECT_EQ(gain_ms(OverGloo("usable_cores=4 local_ranks=2", 16)), all);
  EXPECT_EQ(gain_ms(OverGloo(filled, 16, 2)), all);
}

// Sequence parallelism gathers activations, which no prefetch can fetch.
TEST(FsdpExposedTest, LeavesActivationsToTheGeneralRule) {
  const Report report = Sharded(300, "layers");
  EXPECT_TRUE(IsClean(report, "fsdp-exposed"));
  EXPECT_NE(Find(report, "exposed-collective"), nullptr);
}

TEST(FsdpExposedTest, StaysSilentInAWorldOfOne) {
  EXPECT_TRUE(IsClean(Sharded(300, kMark, 1), "fsdp-exposed"));
}

}  // namespace
}  // namespace stepscope::sharding_test
