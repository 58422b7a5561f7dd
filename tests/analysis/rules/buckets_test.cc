#include "evidence/gradients/late_gradients.h"
#include "rule_testing.h"
#include "support/ddp_text.h"
#include "support/gpu_loop.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"

namespace stepscope::buckets_test {
namespace {

Report Of(const DdpText& text) { return Analyze(TraceFromText(ToRows(text))); }

// `count` all-reduces. The host takes 20 us to issue each.
DdpText Pieces(int count, int64_t elements) {
  DdpText text;
  for (int i = 0; i < count; ++i) {
    text.buckets.push_back(
        {4'000 + 100 * i, 10'000 + 100 * i, 10'020 + 100 * i, elements});
  }
  return text;
}

TEST(DdpBucketShapeTest, FiresOnOneAllReducePerParameter) {
  DdpText text = Pieces(200, 1'000);
  text.parameters = 0;  // only the collectives' own nodes
  const Report report = Of(text);
  const Finding* finding = Find(report, "ddp-bucket-shape");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("200 all-reduces per backward pass"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("one for each of the 200 parameters"),
            std::string::npos);
  EXPECT_NE(finding->evidence.find("takes the host 4.00 ms"),
            std::string::npos);
}

TEST(DdpBucketShapeTest, FiresOnALoopOverParametersAfterBackward) {
  DdpText text = Pieces(100, -1);
  text.in_hooks = false;
  text.parameters = 100;
  EXPECT_NE(Find(Of(text), "ddp-bucket-shape"), nullptr);
}

// 25 all-reduces of 100 gradients are buckets, whatever their size.
TEST(DdpBucketShapeTest, LeavesBucketsOfUnknownSize) {
  DdpText text = Pieces(25, -1);
  text.parameters = 75;
  EXPECT_TRUE(IsClean(Of(text), "ddp-bucket-shape"));
  text.parameters = 25;
  EXPECT_FALSE(IsClean(Of(text), "ddp-bucket-shape"));
}

TEST(DdpBucketShapeTest, FiresOnlyAboveTwentyTinyOnes) {
  EXPECT_TRUE(IsClean(Of(Pieces(20, 1'000)), "ddp-bucket-shape"));
  EXPECT_FALSE(IsClean(Of(Pieces(21, 1'000)), "ddp-bucket-shape"));
}

// 40 gradients of 2 MB, each reduced in 0.1 ms after a backward pass of 8 ms.
// The last bucket of 25 MiB stays exposed.
TEST(DdpBucketShapeTest, ALoopAfterBackwardCouldOverlapWithIt) {
  const std::string backward =
      "backward { repeat 40 { node MmBackward0 10us { op aten::mm 14us { "
      "kernel "
      "ampere_sgemm_128x64_nn 200us } }; accumulate 5us { op aten::detach 2us "
      "} } }\n";
  const std::string loop = "repeat 40 { collective all_reduce 2MB; join }\n";
  const Report report = Analyze(
      RunGpuLoop(
          "repeat 40 { op aten::linear 12us grad { op aten::addmm 14us { "
          "kernel ampere_sgemm_128x64_tn 200us } } }\n" +
              backward + loop +
              "range optimizer \"Optimizer.step#SGD.step\" { op "
              "aten::_fused_sgd_ 90us { kernel update 300us } }\nsync "
              "device\n",
          {}, "ranks 2 network=20")
          .ranks.front());
  const Finding* finding = Find(report, "ddp-bucket-shape");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->gain_kind, GainKind::kPredicted) << report.replay.why_not;
  EXPECT_NE(finding->evidence.find("issued after the backward pass"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->assumption.find(kIssuedWhenReady), std::string::npos)
      << finding->assumption;
  EXPECT_GT(finding->gain.expected_ms, 2.5);
  EXPECT_LT(finding->gain.expected_ms, 4);
  EXPECT_EQ(Find(report, "exposed-collective"), nullptr);  // the same time
}

// Less than 1 MiB after backward may be a loss or a norm, which is not ready
// earlier.
TEST(DdpBucketShapeTest, LittleDataAfterBackwardIsNotTakenForGradients) {
  DdpText text = Pieces(30, 1'000);
  text.in_hooks = false;
  const Report report = Of(text);
  const Finding* finding = Find(report, "ddp-bucket-shape");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->assumption.find(kIssuedWhenReady), std::string::npos);
}

// No all-reduce is large enough to show the links' rate, so the rule uses the
// device's bus.
TEST(DdpBucketShapeTest, SmallOnesAloneAreSizedByTheDevicesBus) {
  DdpText text;
  text.compute_us = {{1'005, 4'000}};
  for (int i = 0; i < 200; ++i) {
    text.buckets.push_back(
        {4'000 + 25 * i, 4'010 + 400 * i, 4'409 + 400 * i, 50'000});
  }
  text.in_hooks = false;
  text.more = "device NVIDIA A100-SXM4-40GB\n";
  // The host reads the loss: each step ends with a wait for the last bucket.
  for (int64_t step = 0; step < text.steps; ++step) {
    const int64_t base_ns = step * 100'000'000;
    text.more += "runtime_call " + std::to_string(base_ns + 9'500'000) + ".." +
                 std::to_string(base_ns + 84'014'000) +
                 " thread=0 correlation=" + std::to_string(900'000 + step) +
                 " cudaDeviceSynchronize\n";
  }
  const Report report = Of(text);
  const Finding* finding = Find(report, "ddp-bucket-shape");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->assumption.find("24.0 GB/s"), std::string::npos)
      << finding->assumption;
  ASSERT_EQ(finding->gain_kind, GainKind::kPredicted) << report.replay.why_not;
  // 40 MB at 24 GB/s replace 200 x 399 us.
  EXPECT_NEAR(finding->gain.expected_ms, 76, 4);
}

// Two ranks on gloo. Each of 24 gradients waits for 2 ms for the other rank.
TEST(DdpBucketShapeTest, OnACpuSmallOnesMostlyWaitForEachOther) {
  std::string rows = "run world_size=2\n";
  for (int64_t step = 0; step < 4; ++step) {
    const auto span = [&](int64_t begin_us, int64_t end_us) {
      return std::to_string((100'000 * step + begin_us) * 1'000) + ".." +
             std::to_string((100'000 * step + end_us) * 1'000) + " ";
    };
    rows += "step " + span(0, 100'000) + "thread=0\n";
    rows += "op " + span(0, 40'000) + "thread=0 aten::mm\n";
    for (int64_t i = 0; i < 24; ++i) {
      const int64_t at = 40'000 + 2'000 * i;
      rows += "op " + span(at, at + 20) +
              "thread=0 kind=backward torch::autograd::AccumulateGrad\n";
      rows += "op " + span(at + 2, at + 18) + "thread=0 c10d::allreduce_\n";
      rows += "communication " + span(at + 2, at + 18) +
              "thread=0 in_elements=1000 dtype=Float group_size=2 allreduce\n";
      rows += "range " + span(at + 20, at + 2'000) +
              "thread=1 kind=collective gloo:all_reduce\n";
    }
    rows += "op " + span(88'000, 100'000) + "thread=0 aten::add_\n";
  }
  const Report report = Analyze(TraceFromText(rows));
  ASSERT_FALSE(report.findings.empty());
  const Finding& finding = report.findings.front();
  EXPECT_EQ(finding.id, "ddp-bucket-shape");
  EXPECT_EQ(finding.gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding.gain.expected_ms, 46, 1);            // one of 24 remains
  EXPECT_EQ(Find(report, "exposed-collective"), nullptr);  // the same time
}

TEST(DdpBucketShapeTest, TinyMeansBelow256KiB) {
  DdpText text = Pieces(30, 65'536);  // floats: 256 KiB
  text.parameters = 100;
  EXPECT_TRUE(IsClean(Of(text), "ddp-bucket-shape"));
  text = Pieces(30, 65'535);
  text.parameters = 100;
  EXPECT_FALSE(IsClean(Of(text), "ddp-bucket-shape"));
}

TEST(DdpBucketShapeTest, StaysSilentOnFiveBuckets) {
  EXPECT_TRUE(IsClean(Of(Pieces(5, 6'000'000)), "ddp-bucket-shape"));
}

TEST(DdpBucketShapeTest, FiresOnOneExposedBucketThatHoldsNearlyAll) {
  const auto with_share = [](int64_t large, int64_t end_us) {
    return Of({.buckets = {{4'000, 20'000, 21'000, 10'000'000 - large},
                           {5'000, 80'000, end_us, large}}});
  };
  EXPECT_NE(Find(with_share(8'500'000, 97'000), "ddp-bucket-shape"), nullptr);
  EXPECT_TRUE(IsClean(with_share(7'900'000, 97'000), "ddp-bucket-shape"));
  // Computation hides the bucket, so it is harmless.
  EXPECT_TRUE(IsClean(with_share(8'500'000, 89'000), "ddp-bucket-shape"));
}

TEST(DdpBucketShapeTest, StaysSilentOnASmallModelsOneBucket) {
  EXPECT_TRUE(IsClean(Of({.buckets = {{5'000, 80'000, 97'000, 6'000'000}}}),
                      "ddp-bucket-shape"));
}

TEST(DdpBucketShapeTest, LeavesOutAllReducesOfOtherNodes) {
  DdpText text;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 40; ++i) {
      const int64_t ns = step * 100'000'000 + 20'000'000 + i * 100'000;
      const std::string span =
          std::to_string(ns) + ".." + std::to_string(ns + 20'000);
      text.more +=
          "op " + span +
          " thread=1 kind=backward SyncBatchNormBackward\n"
          "op " +
          span +
          " thread=1 c10d::allreduce_\n"
          "runtime_call " +
          std::to_string(ns + 100) + ".." + std::to_string(ns + 200) +
          " thread=1 correlation=" + std::to_string(10'000 + step * 100 + i) +
          " cudaLaunchKernel\n"
          "kernel " +
          std::to_string(ns + 1'000) + ".." + std::to_string(ns + 2'000) +
          " stream=20 correlation=" + std::to_string(10'000 + step * 100 + i) +
          " ncclDevKernel_AllReduce_Sum_f32_RING_LL\n";
    }
  }
  EXPECT_TRUE(IsClean(Of(text), "ddp-bucket-shape"));
}

// Five steps in which `count` all-reduces of unknown size follow a product. If
// `between`, a product is launched after each of them.
Report Unsized(int count, bool between) {
  GpuText run;
  run.Line("run world_size=8");
  const auto product = [&] {
    run.Begin("op", "aten::mm");
    run.Kernel(100, "ampere_sgemm_128x128_tn");
    run.End();
  };
  for (int step = 0; step < 5; ++step) {
    product();
    for (int i = 0; i < count; ++i) {
      run.Begin("op", "c10d::allreduce_");
      run.OnStream(20);
      run.Kernel(50, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
      run.OnStream(7);
      run.End();
      if (between) product();
    }
    run.Synchronize("cudaDeviceSynchronize");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(DdpBucketShapeTest, SeesSeriesOfUnknownSize) {
  const Report report = Unsized(404, false);
  const Finding* finding = Find(report, "ddp-bucket-shape");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find(
                "404 collectives per step (mostly all-reduce) could be 1 call"),
            std::string::npos)
      << finding->evidence;
  // Saves all but the longest all-reduce and the time to issue them, at most
  // the step.
  EXPECT_GT(finding->gain.expected_ms, 20);
}

TEST(DdpBucketShapeTest, NeedsTwentyThatFollowAnother) {
  EXPECT_TRUE(IsClean(Unsized(20, false), "ddp-bucket-shape"));
  EXPECT_FALSE(IsClean(Unsized(21, false), "ddp-bucket-shape"));
}

// Tensor parallelism: the next product needs each all-reduce's result.
TEST(DdpBucketShapeTest, LeavesCollectivesBetweenProductsAlone) {
  EXPECT_TRUE(IsClean(Unsized(100, true), "ddp-bucket-shape"));
}

// What runs between the nodes of a CUDA graph is not known.
TEST(DdpBucketShapeTest, LeavesCollectivesInCudaGraphsAlone) {
  GpuText run;
  run.Line("run world_size=8");
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(1'000, "gemm");
    run.End();
    for (int i = 0; i < 100; ++i) {
      run.Kernel(50, "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                 "cudaGraphLaunch");
    }
    run.Synchronize("cudaDeviceSynchronize");
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), "ddp-bucket-shape"));
}

}  // namespace
}  // namespace stepscope::buckets_test
