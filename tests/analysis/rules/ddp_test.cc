#include "rule_testing.h"
#include "support/ddp_text.h"
#include "support/trace_text.h"

namespace stepscope::ddp_test {
namespace {

Report Of(const DdpText& text) { return Analyze(TraceFromText(ToRows(text))); }

std::string Span(int64_t begin_us, int64_t end_us) {
  return std::to_string(begin_us * 1000) + ".." + std::to_string(end_us * 1000);
}

// Two buckets per pass that end after the computation.
DdpText Passes(int passes) {
  return {.buckets = {{4'000, 30'000, 34'000, 1'000'000},
                      {5'000, 34'000, 38'000, 1'000'000}},
          .compute_us = {{2'000, 30'000}},
          .passes = passes};
}

TEST(MissingNoSyncTest, FiresWhereBothPassesReduce) {
  const Report report = Of(Passes(2));
  const Finding* finding = Find(report, "missing-no-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("each of the 2 backward passes"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("2 all-reduces per step could be left out"),
            std::string::npos);
  EXPECT_NE(finding->evidence.find("8.00 ms of their time is exposed"),
            std::string::npos);
  EXPECT_NE(finding->fix_python.find("no_sync"), std::string::npos);
}

// Rows for three steps of Passes(2). In each step, the passes in `passes` copy
// their gradients into buckets while nodes run, which takes 100 us. They copy
// them back in `back_us` when all nodes have ended, as DDP does. The device
// takes 250 us for each copy.
std::string BucketCopies(const std::vector<int>& passes, int64_t back_us) {
  std::string rows;
  int correlation = 30'000;
  for (int step = 0; step < 3; ++step) {
    for (int pass : passes) {
      const int64_t at = step * 100'000 + pass * 50'000;
      const auto copy = [&](int64_t host_us, int64_t us, int64_t device_us,
                            const char* name) {
        const std::string id = std::to_string(correlation++);
        rows += "op " + Span(at + host_us, at + host_us + us) + " thread=1 " +
                name + "\nruntime_call " +
                Span(at + host_us + 1, at + host_us + us - 1) +
                " thread=1 correlation=" + id + " cudaLaunchKernel\nkernel " +
                Span(at + device_us, at + device_us + 250) +
                " stream=7 correlation=" + id + " copy_kernel\n";
      };
      copy(4'200, 100, 30'000, "torch::distributed::reducer::mul_out");
      copy(5'100, back_us, 38'000,
           "torch.distributed.ddp.reducer::copy_bucket_to_grad");
    }
  }
  return rows;
}

TEST(MissingNoSyncTest, CountsBucketCopiesOfPassesThatNeedNotReduce) {
  DdpText text = Passes(2);
  text.more = BucketCopies({0, 1}, 100);
  const Report report = Of(text);
  const Finding* finding = Find(report, "missing-no-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find(
                "Copies into and out of buckets take another 0.70 ms."),
            std::string::npos)
      << finding->evidence;
}

// The last pass must reduce, and the search is another finding.
TEST(MissingNoSyncTest, LeavesOutCopiesOfTheLastPassAndOtherWork) {
  DdpText text = Passes(2);
  text.more = BucketCopies({1}, 100);
  for (int step = 0; step < 3; ++step) {
    for (int64_t at : {1'500, 51'500}) {
      text.more += "op " +
                   Span(step * 100'000 + at, step * 100'000 + at + 300) +
                   " thread=0 torch.distributed.ddp.reducer::"
                   "search_unused_parameters\n";
    }
  }
  const Report report = Of(text);
  const Finding* finding = Find(report, "missing-no-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.find("out of buckets"), std::string::npos)
      << finding->evidence;
}

// Two passes of 50 ms: 10 ms of forward, an all-reduce of 20 ms that overlaps
// with 10 ms of computation, and `copy_ms` of copying gradients out of the
// bucket. The op after that takes 14 ms; in the first pass of a step, it takes
// `faster_ms` less.
Report OnCpu(int copy_ms, int faster_ms = 0) {
  std::string rows = "run world_size=2\n";
  for (int pass = 0; pass < 6; ++pass) {
    const auto row = [&](const std::string& kind, int from_ms, int to_ms,
                         const std::string& rest) {
      rows +=
          kind + " " +
          Span(50'000 * pass + 1000 * from_ms, 50'000 * pass + 1000 * to_ms) +
          " " + rest + "\n";
    };
    if (pass % 2 == 0) row("step", 0, 100, "thread=0");
    row("op", 0, 10, "thread=0 aten::mm");
    row("op", 10, 12, "thread=0 kind=backward torch::autograd::AccumulateGrad");
    row("op", 11, 12, "thread=0 inputs=(float[1000000]) c10d::allreduce_");
    row("range", 12, 32, "thread=1 kind=collective gloo:all_reduce");
    row("op", 12, 22, "thread=0 kind=backward MmBackward0");
    row("op", 12, 22, "thread=0 aten::mm");
    row("op", 32, 32 + copy_ms,
        "thread=0 torch.distributed.ddp.reducer::copy_bucket_to_grad");
    row("op", 36, 50 - (pass % 2 == 0 ? faster_ms : 0),
        "thread=0 inputs=(float[1000,1000],float[1000,1000]) aten::add_");
  }
  return Analyze(TraceFromText(rows));
}

// Time of one needless all-reduce per step: 10 ms of waiting, 1 ms of issuing,
// half of the computation beside it, and its copies.
TEST(MissingNoSyncTest, OnACpuBoundsTheWorkBesideAnAllReduce) {
  const Report report = OnCpu(3);
  const Finding* finding = Find(report, "missing-no-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 10 + 1 + 5 + 3, 0.1);
}

// An op without a collective of this rank beside it may still compete with
// another rank's collective. That explains 8 or 12 ms per step. Half belongs to
// the pass that must reduce. The other half counts if it exceeds the 5 ms
// beside the collective.
TEST(MissingNoSyncTest, OnACpuCountsOpsThatOtherRanksSlowDown) {
  EXPECT_NEAR(Find(OnCpu(3, 8), "missing-no-sync")->gain.expected_ms,
              10 + 1 + 5 + 3, 0.1);
  EXPECT_NEAR(Find(OnCpu(3, 12), "missing-no-sync")->gain.expected_ms,
              10 + 1 + 6 + 3, 0.1);
}

TEST(MissingNoSyncTest, StaysSilentOnOnePassPerStep) {
  EXPECT_TRUE(IsClean(Of(Passes(1)), "missing-no-sync"));
}

TEST(MissingNoSyncTest, StaysSilentWhereAnOptimizerStepLiesBetween) {
  DdpText text = Passes(2);
  for (int step = 0; step < 3; ++step) {
    for (int half = 0; half < 2; ++half) {
      const int64_t at = step * 100'000 + half * 50'000 + 45'000;
      text.more += "range " + Span(at, at + 1'000) +
                   " thread=0 kind=optimizer Optimizer.step#SGD.step\n";
    }
  }
  EXPECT_TRUE(IsClean(Of(text), "missing-no-sync"));
}

TEST(MissingNoSyncTest, StaysSilentOnShardedParameters) {
  DdpText text = Passes(2);
  text.more =
      "runtime_call 50000..50400 thread=0 correlation=9000 cudaLaunchKernel\n"
      "kernel 60000..70000 stream=21 correlation=9000 "
      "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL\n";
  EXPECT_TRUE(IsClean(Of(text), "missing-no-sync"));
}

TEST(MissingNoSyncTest, PassesOfDifferentSizesAreDifferentModels) {
  DdpText text = Passes(1);
  // A second, much smaller model runs later in the step.
  int correlation = 5'000;
  for (int step = 0; step < 3; ++step) {
    const int64_t at = step * 100'000 + 60'000;
    const std::string id = std::to_string(correlation++);
    text.more +=
        "op " + Span(at, at + 100) + " thread=0 aten::mm\n" + "op " +
        Span(at + 1'000, at + 1'030) +
        " thread=1 kind=backward torch::autograd::AccumulateGrad\nop " +
        Span(at + 1'001, at + 1'020) + " thread=1 c10d::allreduce_\n" +
        "communication " + Span(at + 1'001, at + 1'020) +
        " thread=1 in_elements=1000 dtype=Float group_size=2 allreduce\n" +
        "runtime_call " + Span(at + 1'002, at + 1'004) +
        " thread=1 correlation=" + id + " cudaLaunchKernel\nkernel " +
        Span(at + 1'010, at + 1'050) + " stream=20 correlation=" + id +
        " ncclDevKernel_AllReduce_Sum_f32_RING_LL\n";
  }
  EXPECT_TRUE(IsClean(Of(text), "missing-no-sync"));
}

// A search of `us` per step, on the training thread.
DdpText WithSearch(int64_t us) {
  DdpText text{.buckets = {{4'000, 30'000, 34'000, 1'000'000}}};
  for (int step = 0; step < 3; ++step) {
    text.more += "op " +
                 Span(step * 100'000 + 1'500, step * 100'000 + 1'500 + us) +
                 " thread=0 "
                 "torch.distributed.ddp.reducer::search_unused_parameters\n";
  }
  return text;
}

TEST(DdpUnusedSearchTest, FiresFromOnePerCentOfTheStep) {
  EXPECT_TRUE(IsClean(Of(WithSearch(900)), "ddp-unused-search"));
  const Report report = Of(WithSearch(1'100));
  const Finding* finding = Find(report, "ddp-unused-search");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NE(finding->evidence.find("1.10 ms per step"), std::string::npos);
}

TEST(DdpUnusedSearchTest, StaysSilentOnAStaticGraph) {
  EXPECT_TRUE(IsClean(Of({.buckets = {{3'001, 30'000, 34'000, 1'000'000},
                                      {5'000, 34'000, 38'000, 1'000'000}}}),
                      "ddp-unused-search"));
}

TEST(DdpUnusedSearchTest, FiresWhereTheFirstBucketGoesOutLate) {
  // The nodes start at 3,000 us and take 100 us each; the first bucket goes out
  // at 5,000 or 6,000 us.
  const auto first_at = [](int64_t issue_us) {
    return Of({.buckets = {{issue_us, 91'000, 93'000, 1'000'000},
                           {6'000, 93'000, 95'000, 1'000'000}},
               .parameters = 50});
  };
  EXPECT_NE(Find(first_at(5'000), "ddp-unused-search"), nullptr);
  EXPECT_TRUE(IsClean(first_at(4'000), "ddp-unused-search"));
}

TEST(DdpUnusedSearchTest, AllowsAFirstBucketOfMostGradientsToBeLate) {
  const auto with_first = [](int64_t elements) {
    return Of({.buckets = {{5'000, 91'000, 93'000, elements},
                           {6'000, 93'000, 95'000, 1'000'000}},
               .parameters = 50});
  };
  EXPECT_NE(Find(with_first(1'000'000), "ddp-unused-search"), nullptr);
  EXPECT_TRUE(IsClean(with_first(1'100'000), "ddp-unused-search"));
}

// Steps with `copies` copies of 100 us, each of which launches 20 us of device
// work.
DdpText WithCopiesBack(int copies) {
  DdpText text{.buckets = {{4'000, 30'000, 34'000, 1'000'000}}};
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < copies; ++i) {
      const int64_t at = step * 100'000 + 40'000 + i * 200;
      const std::string id = std::to_string(20'000 + step * 1'000 + i);
      text.more += "range " + Span(at, at + 100) +
                   " thread=1 kind=collective "
                   "torch.distributed.ddp.reducer::copy_bucket_to_grad\n"
                   "runtime_call " +
                   Span(at + 10, at + 12) + " thread=1 correlation=" + id +
                   " cudaMemcpyAsync\ncopy " + Span(at + 20, at + 40) +
                   " correlation=" + id + " source=device destination=device\n";
    }
  }
  return text;
}

TEST(DdpExtraCopiesTest, CountsHostAndDevice) {
  const Report report = Of(WithCopiesBack(160));
  const Finding* finding = Find(report, "ddp-extra-copies");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("160 copies per step take 16.0 ms of host "
                                   "time and 3.20 ms of device time"),
            std::string::npos)
      << finding->evidence;
}

// Without the reduction of the first pass, only the second one copies.
TEST(DdpExtraCopiesTest, YieldsToMissingNoSync) {
  DdpText text = Passes(2);
  text.more = BucketCopies({0, 1}, 3'000);
  const Report report = Of(text);
  ASSERT_NE(Find(report, "missing-no-sync"), nullptr);
  const Finding* finding = Find(report, "ddp-extra-copies");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.2);
  EXPECT_NE(finding->evidence.find("after the change of missing-no-sync"),
            std::string::npos)
      << finding->evidence;
}

// Steps in which DDP broadcasts buffers for `us` on the training thread, before
// the forward pass: 10 us to join them, then `middle`, then a copy to each.
DdpText WithBuffers(int64_t us, const std::string& middle) {
  DdpText text{.buckets = {{4'000, 30'000, 34'000, 1'000'000}}};
  for (int step = 0; step < 3; ++step) {
    const int64_t at = step * 100'000 + 100;
    const auto op = [&](int64_t begin, int64_t end, const std::string& name) {
      return "op " + Span(at + begin, at + end) + " thread=0 " + name + "\n";
    };
    text.more += op(0, 10, "aten::flatten_dense_tensors") +
                 op(10, 20, "c10d::broadcast_") + op(20, 30, middle) +
                 op(30, us, "aten::copy_") +
                 op(us, us + 100, "aten::convolution");
  }
  return text;
}

TEST(DdpExtraCopiesTest, CountsTheBroadcastOfBuffers) {
  const Report report = Of(WithBuffers(2'000, "aten::unflatten_dense_tensors"));
  const Finding* finding = Find(report, "ddp-extra-copies");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("DDP broadcasts the buffers of the model "
                                   "before the forward pass, which takes 2.00 "
                                   "ms of host time"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("broadcast_buffers=False"),
            std::string::npos);
  EXPECT_EQ(finding->fix_python.find("gradient_as_bucket_view"),
            std::string::npos);
  EXPECT_TRUE(IsClean(Of(WithBuffers(900, "aten::unflatten_dense_tensors")),
                      "ddp-extra-copies"));
  // Nothing takes the joined tensor apart, so it holds gradients, for example.
  EXPECT_TRUE(
      IsClean(Of(WithBuffers(2'000, "aten::copy_")), "ddp-extra-copies"));
  EXPECT_TRUE(IsClean(Of(WithBuffers(2'000, "aten::mul")), "ddp-extra-copies"));
}

TEST(DdpExtraCopiesTest, StaysSilentBelowOnePerCent) {
  EXPECT_TRUE(IsClean(Of(WithCopiesBack(8)), "ddp-extra-copies"));
  EXPECT_FALSE(IsClean(Of(WithCopiesBack(9)), "ddp-extra-copies"));
}

TEST(DdpExtraCopiesTest, StaysSilentWhereGradientsAreViews) {
  EXPECT_TRUE(IsClean(Of(Passes(1)), "ddp-extra-copies"));
}

// Kernels that one process runs on two devices.
std::string OnTwoDevices(const char* second, bool broadcast, bool marked) {
  std::string text;
  int correlation = 1;
  for (int step = 0; step < 3; ++step) {
    const int64_t base = step * 100'000;
    text += "step " + Span(base, base + 100'000) +
            " thread=0 number=" + std::to_string(step) + "\n";
    if (marked) {
      text += "range " + Span(base + 100, base + 50'000) +
              " thread=0 kind=collective DataParallel.forward\n";
    }
    for (int device = 0; device < 2; ++device) {
      const auto kernel = [&](int64_t begin, int64_t end, const char* name,
                              int stream) {
        const std::string id = std::to_string(correlation++);
        text += "runtime_call " + Span(base + begin - 50, base + begin - 45) +
                " thread=0 correlation=" + id + " cudaLaunchKernel\nkernel " +
                Span(base + begin, base + end) +
                " device=" + std::to_string(device) +
                " stream=" + std::to_string(stream) + " correlation=" + id +
                " " + name + "\n";
      };
      if (broadcast) {
        kernel(1'000, 11'000, "ncclKernel_Broadcast_RING_LL_Sum_int8_t", 20);
      }
      kernel(12'000, device == 0 ? 92'000 : 62'000,
             device == 0 ? "gemm" : second, 7);
    }
  }
  return text;
}

TEST(DataParallelTest, FiresOnItsRange) {
  const Report report =
      Analyze(TraceFromText(OnTwoDevices("gemm", true, true)));
  const Finding* finding = Find(report, "dataparallel");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Saves the 10 ms broadcast, and 80 ms of computation shrink to the devices'
  // mean, 65 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 25, 0.5);
}

TEST(DataParallelTest, FiresOnReplicasInOneProcess) {
  EXPECT_NE(Find(Analyze(TraceFromText(OnTwoDevices("gemm", true, false))),
                 "dataparallel"),
            nullptr);
}

TEST(DataParallelTest, StaysSilentOnModelParallelism) {
  EXPECT_TRUE(IsClean(Analyze(TraceFromText(OnTwoDevices("conv", true, false))),
                      "dataparallel"));
  EXPECT_TRUE(
      IsClean(Analyze(TraceFromText(OnTwoDevices("gemm", false, false))),
              "dataparallel"));
}

TEST(DataParallelTest, MutesTheRulesAboutCollectives) {
  const Report report =
      Analyze(TraceFromText(OnTwoDevices("gemm", true, true)));
  EXPECT_EQ(Find(report, "exposed-collective"), nullptr);
  EXPECT_EQ(std::ranges::count(report.superseded,
                               "exposed-collective (by dataparallel)"),
            1);
}

// Three steps of 100 ms, in which each of two GPUs computes in a part of its
// own: GPU 0 until `first_ms`, then GPU 1, from `from_ms` on, until 90 ms.
Report Split(int64_t first_ms, int64_t from_ms, const char* name = "gemm") {
  std::string text = "watch kernel op step\n";
  int correlation = 0;
  for (int64_t step = 0; step < 3; ++step) {
    const auto at = [&](int64_t ms) {
      return std::to_string((100 * step + ms) * 1'000'000);
    };
    text += "step " + at(0) + ".." + at(100) +
            " thread=0 number=" + std::to_string(step) + "\nop " + at(0) +
            ".." + at(99) + " thread=0 aten::linear\n";
    const auto kernel = [&](int device, int64_t begin, int64_t end) {
      const std::string id = " correlation=" + std::to_string(++correlation);
      text += "runtime_call " + at(begin) + ".." + at(begin) + " thread=0" +
              id + " cudaLaunchKernel\nkernel " + at(begin) + ".." + at(end) +
              " stream=7 device=" + std::to_string(device) + id + " " + name +
              "\n";
    };
    kernel(0, 1, first_ms);
    kernel(1, from_ms, 90);
  }
  return Analyze(TraceFromText(text));
}

TEST(GpusTakeTurnsTest, FiresOnAModelThatIsSplitByLayers) {
  const Report report = Split(51, 52);
  const Finding* finding = Find(report, "gpus-take-turns");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // The 38 ms of GPU 1 could all pass while GPU 0 computes for 50 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 38, 0.5);
  EXPECT_NE(finding->evidence.find("GPU 0 computes for 50.0 ms and GPU 1 for "
                                   "38.0 ms of the 100 ms step"),
            std::string::npos)
      << finding->evidence;
}

TEST(GpusTakeTurnsTest, StaysSilentWhereTheyComputeAtOnce) {
  EXPECT_TRUE(IsClean(Split(51, 10), "gpus-take-turns"));
}

TEST(GpusTakeTurnsTest, StaysSilentWhereOneOnlyHelpsOut) {
  EXPECT_TRUE(IsClean(Split(84, 85), "gpus-take-turns"));
}

TEST(GpusTakeTurnsTest, StaysSilentOnCollectives) {
  EXPECT_TRUE(IsClean(Split(51, 52, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
                      "gpus-take-turns"));
}

}  // namespace
}  // namespace stepscope::ddp_test
