#include "analysis/rules/rule_testing.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"

namespace stepscope::sharding_test {
namespace {

// Five steps of four layers. Each layer gathers its shards and computes for 1
// ms. In backward, it gathers again, computes and scatters. `gather_us` of each
// gather are exposed, because the computation waits for it.
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

// Collectives that run all the time cannot begin earlier.
TEST(FsdpExposedTest, PointsToTheLinksWhereShardsMoveAllTheTime) {
  const auto of = [](double gather_us) {
    GpuText run;
    run.Line("run world_size=8");
    for (int step = 0; step < 5; ++step) {
      for (int layer = 0; layer < 8; ++layer) {
        run.Begin("range", kMark);
        run.Begin("op", "c10d::_allgather_base_");
        run.OnStream(20);
        run.Kernel(gather_us, "ncclDevKernel_AllGather_RING_LL");
        run.OnStream(7);
        run.End();
        if (layer > 0) {
          run.Begin("op", "aten::mm");
          run.Kernel(1'000, "gemm");
          run.End();
        }
        run.Synchronize("cudaEventSynchronize");
        run.End();
      }
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report report = of(3'000);
  const Finding* finding = Find(report, "fsdp-exposed");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("gathering ahead gains little"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("NCCL_DEBUG=INFO"), std::string::npos);
  EXPECT_EQ(Find(Sharded(300, kMark), "fsdp-exposed")
                ->evidence.find("gathering ahead gains little"),
            std::string::npos);
}

TEST(FsdpExposedTest, StaysSilentBelowThreePerCentOfTheStep) {
  // Steps take a little more than 8 ms: 3 % are 0.25 ms.
  EXPECT_TRUE(IsClean(Sharded(20, kMark), "fsdp-exposed"));
  EXPECT_FALSE(IsClean(Sharded(40, kMark), "fsdp-exposed"));
}

// A CPU rank that waits for shards in 6.8 of the 20 ms of a step. Its process
// uses `busy_ms` of CPU time per step; negative: not recorded.
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
              " intra_op_threads=" + std::to_string(threads) + "\nhost_usage " +
              span(0, 20'000) + "step=" + std::to_string(step) +
              " process_cpu_ns=" + std::to_string(busy_ms * 1'000'000) + "\n";
    }
  }
  return Analyze(TraceFromText(rows));
}

// gloo has no reduce-scatter, so it runs an all-reduce.
TEST(FsdpExposedTest, TreatsGloosAllReduceAsAReduceScatter) {
  const Report report = OverGloo();
  const Finding* finding = Find(report, "fsdp-exposed");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("1 all-gather and 1 reduce-scatter of"),
            std::string::npos)
      << finding->evidence;
}

// Two ranks on two cores: each core is idle for 4 ms, and only idle time can be
// saved, because the cores do the collectives' work themselves.
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
  // Half of the time is idle; a core is free; or threads may spin while they
  // wait.
  EXPECT_EQ(gain_ms(OverGloo(filled, 10)), all);
  EXPECT_EQ(gain_ms(OverGloo("usable_cores=4 local_ranks=2", 16)), all);
  EXPECT_EQ(gain_ms(OverGloo(filled, 16, 2)), all);
}

// Sequence parallelism gathers activations, which cannot be prefetched.
TEST(FsdpExposedTest, LeavesActivationsToTheGeneralRule) {
  const Report report = Sharded(300, "layers");
  EXPECT_TRUE(IsClean(report, "fsdp-exposed"));
  EXPECT_NE(Find(report, "exposed-collective"), nullptr);
}

TEST(FsdpExposedTest, StaysSilentInAWorldOfOne) {
  EXPECT_TRUE(IsClean(Sharded(300, kMark, 1), "fsdp-exposed"));
}

struct Units {
  int forward = 1;      // number of gathers before the four layers compute
  bool hidden = false;  // another layer computes during one of the scatters
};

// Five steps of a model whose backward pass gathers once and scatters once.
Report InUnits(const Units& units) {
  GpuText run;
  run.Line("run world_size=8");
  const auto collective = [&](const char* name) {
    run.Begin("op", "c10d::_allgather_base_");
    run.OnStream(20);
    run.Kernel(600, name);
    run.OnStream(7);
    run.End();
  };
  const auto compute = [&](bool waits) {
    run.Begin("op", "aten::mm");
    run.Kernel(1000, "gemm");
    run.End();
    if (waits) run.Synchronize("cudaEventSynchronize");
  };
  for (int step = 0; step < 5; ++step) {
    for (int layer = 0; layer < 4; ++layer) {
      run.Begin("range", kMark);
      if (layer < units.forward) {
        collective("ncclDevKernel_AllGather_RING_LL");
        run.Synchronize("cudaEventSynchronize");
      }
      compute(true);
      run.End();
    }
    run.Begin("op", "MmBackward0", "kind=backward");
    collective("ncclDevKernel_AllGather_RING_LL");
    run.Synchronize("cudaEventSynchronize");
    compute(!units.hidden || step != 2);
    collective("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL");
    run.Synchronize("cudaEventSynchronize");
    run.End();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(FsdpExposedTest, AdvisesToShardBlocksOfAModelThatIsOneUnit) {
  const Report report = InUnits({});
  const Finding* finding = Find(report, "fsdp-exposed");
  ASSERT_NE(finding, nullptr);
  // Two gathers and a scatter, all exposed.
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 3 * 0.6, 0.01);
  EXPECT_NE(finding->evidence.find("All parameters are gathered at once"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("fully_shard(block)"), std::string::npos);
  EXPECT_NE(finding->fix_cpp.find("of each block"), std::string::npos);
  EXPECT_EQ(finding->fix_python.find("prefetch"), std::string::npos)
      << finding->fix_python;
}

TEST(FsdpExposedTest, AdvisesToPrefetchUnlessTheModelIsOneUnit) {
  // Two units; parameters are there in the forward pass; a collective overlaps
  // with computing.
  for (const Units& units :
       {Units{.forward = 2}, Units{.forward = 0}, Units{.hidden = true}}) {
    const Report report = InUnits(units);
    const Finding* finding = Find(report, "fsdp-exposed");
    ASSERT_NE(finding, nullptr) << units.forward << units.hidden;
    EXPECT_NE(finding->fix_python.find("forward_prefetch"), std::string::npos)
        << finding->fix_python;
    EXPECT_EQ(finding->evidence.find("gathered at once"), std::string::npos)
        << finding->evidence;
  }
}

// Five steps that gather one block for 1 ms before anything computes, overlap
// the gather of the next with a product, or wait for it, and scatter the last
// gradients for 1 ms after the last product.
Report AtTheEdges(bool waits) {
  GpuText run;
  run.Line("run world_size=2");
  const auto shards = [&](const char* op, const char* kernel, bool wait) {
    run.Begin("op", op);
    run.OnStream(20);
    run.Kernel(1000, kernel);
    run.OnStream(7);
    run.End();
    if (wait) run.Synchronize("cudaEventSynchronize");
  };
  const auto product = [&] {
    run.Begin("op", "aten::mm");
    run.Kernel(8000, "gemm");
    run.End();
  };
  for (int step = 0; step < 5; ++step) {
    run.Begin("range", kMark);
    for (int block = 0; block < 2; ++block) {
      shards("c10d::_allgather_base_", "ncclDevKernel_AllGather_RING_LL",
             block == 0 || waits);
      product();
      if (waits) run.Synchronize("cudaEventSynchronize");
    }
    run.Synchronize("cudaDeviceSynchronize");
    shards("c10d::_reduce_scatter_base_",
           "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", true);
    run.End();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(FsdpExposedTest, NothingCanRunBesideTheFirstGatherAndTheLastScatter) {
  // 2 of 18 ms are exposed, all of it at the edges.
  const Report overlapped = AtTheEdges(false);
  EXPECT_TRUE(IsClean(overlapped, "fsdp-exposed"));
  EXPECT_TRUE(IsClean(overlapped, "exposed-collective"));
  // One more, between the products.
  const Report waiting = AtTheEdges(true);
  const Finding* finding = Find(waiting, "fsdp-exposed");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("In 1.0"), std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.1);
}

}  // namespace
}  // namespace stepscope::sharding_test
