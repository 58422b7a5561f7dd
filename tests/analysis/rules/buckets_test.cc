#include "support/ddp_text.h"
#include "rule_testing.h"
#include "support/trace_text.h"

namespace stepscope {
namespace {

Report Of(const DdpText& text) { return Analyze(TraceFromText(ToRows(text))); }

// `count` all-reduces that the host takes 20 us each to issue.
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
  text.parameters = 0;  // the collectives' own nodes are all there are
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

TEST(DdpBucketShapeTest, FiresOnlyAboveTwentyTinyOnes) {
  EXPECT_TRUE(IsClean(Of(Pieces(20, 1'000)), "ddp-bucket-shape"));
  EXPECT_FALSE(IsClean(Of(Pieces(21, 1'000)), "ddp-bucket-shape"));
}

// None is large enough to tell the links' rate, so the device's bus stands in.
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
  // 40 MB at 24 GB/s instead of 200 x 399 us.
  EXPECT_NEAR(finding->gain.expected_ms, 76, 4);
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
  // Hidden behind computing: harmless.
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

}  // namespace
}  // namespace stepscope
