#include <string>
#include <string_view>

#include "device/collective_names.h"
#include "evidence/collectives/transfers.h"
#include "rule_testing.h"
#include "support/ddp_text.h"
#include "support/gpu_loop.h"
#include "support/trace_text.h"

namespace stepscope::collectives_test {
namespace {

Report Of(const DdpText& text) { return Analyze(TraceFromText(ToRows(text))); }

// One bucket that ends `exposed_us` after the computation.
DdpText WithExposed(int64_t exposed_us) {
  return {.buckets = {{4'000, 80'000, 90'000 + exposed_us, 1'000'000}}};
}

TEST(ExposedCollectiveTest, FiresAndSaysWhatIsMovedAndWhatIsWaiting) {
  // The second bucket moves as much data as the first, in twice the time.
  const Report report = Of({.buckets = {{4'000, 70'000, 75'000, 10'000'000},
                                        {4'100, 88'000, 98'000, 10'000'000}}});
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NE(finding->evidence.find("2 collectives per step take 15.0 ms"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("during 8.00 ms"), std::string::npos);
  EXPECT_NE(finding->evidence.find("8.00 GB/s"), std::string::npos);
  EXPECT_NE(finding->evidence.find("transfers explain 5.00 ms"),
            std::string::npos);
  EXPECT_EQ(finding->examples.size(), 3u);
  EXPECT_NE(finding->where.find("AccumulateGrad > c10d::allreduce_"),
            std::string::npos);
}

TEST(ExposedCollectiveTest, StaysSilentBelowThreePerCentOfTheStep) {
  EXPECT_TRUE(IsClean(Of(WithExposed(2'900)), "exposed-collective"));
  EXPECT_FALSE(IsClean(Of(WithExposed(3'100)), "exposed-collective"));
}

TEST(ExposedCollectiveTest, StaysSilentWhereComputingHidesItAll) {
  EXPECT_TRUE(IsClean(Of({.buckets = {{4'000, 20'000, 80'000, 1'000'000}}}),
                      "exposed-collective"));
}

TEST(ExposedCollectiveTest, StaysSilentInAWorldOfOne) {
  DdpText text = WithExposed(9'000);
  text.world_size = 1;
  EXPECT_TRUE(IsClean(Of(text), "exposed-collective"));
}

TEST(ExposedCollectiveTest, CannotTellMovingFromWaitingWithoutSizes) {
  DdpText text = WithExposed(8'000);
  text.buckets[0].elements = -1;
  const Report report = Of(text);
  ASSERT_NE(Find(report, "exposed-collective"), nullptr);
  EXPECT_NE(Find(report, "exposed-collective")
                ->evidence.find("cannot be distinguished"),
            std::string::npos);
}

// Without sizes, the first and smallest bucket tells who is late.
TEST(ExposedCollectiveTest, TheFirstOfManyReducesWaitsForLateRanks) {
  const auto with = [](int64_t first_us) {
    DdpText text;
    text.compute_us = {{5'000, 30'000}};
    int64_t at_us = 32'000;
    for (int64_t us : {first_us, int64_t{4'000}, int64_t{5'000}, int64_t{4'000},
                       int64_t{4'000}}) {
      text.buckets.push_back({4'000, at_us, at_us + us, -1});
      at_us += us;
    }
    return TraceFromText(ToRows(text));
  };
  const Report report = Analyze(with(24'000));
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("takes 24.0 ms, the others 4.00 ms in the "
                                   "median: this rank waits there for ranks "
                                   "that arrive later, 20.0 ms per step"),
            std::string::npos)
      << finding->evidence;
  const auto waits = [&](int64_t first_us) {
    const Trace trace = with(first_us);
    return WaitsAtTheFirst(AnalysisContext(trace)).has_value();
  };
  EXPECT_TRUE(waits(16'000));
  EXPECT_FALSE(waits(15'000));
}

// With 16 or more samples per rank, a rank's own statistics suffice.
TEST(ExposedCollectiveTest, NamesLayersOfSyncBatchNorm) {
  const auto with = [](const std::string& inputs) {
    std::string text = ToRows(WithExposed(8'000));
    for (int step = 0; step < 3; ++step) {
      const std::string at = std::to_string(step * 100'000'000 + 2'000'000);
      text += "op " + at + ".." + at + " thread=0 " + inputs +
              "aten::batch_norm_stats\n";
    }
    return Analyze(TraceFromText(text));
  };
  const Report large = with("inputs=(float[64,64,8,8]) ");
  const Finding* finding = Find(large, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("1 layer of SyncBatchNorm per step waits"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(finding->fix_python.starts_with("BatchNorm in place of"));
  const Report small = with("inputs=(float[8,64,8,8]) ");
  EXPECT_FALSE(
      Find(small, "exposed-collective")->fix_python.starts_with("BatchNorm"));
  EXPECT_NE(Find(with(""), "exposed-collective")
                ->fix_python.find("if each rank has 16 samples or more"),
            std::string::npos);
}

TEST(ExposedCollectiveTest, CannotLookAtAJobWhoseCollectivesAreMissing) {
  EXPECT_NE(WhySkipped(Of({.buckets = {}}), "exposed-collective"), "");
}

// Steps of 100 ms in which the training thread waits for two all-reduces:
// `first_ms` for the first, the rest of 47 ms for the second. Every second step
// computes for `more_ms` longer.
Report OnGloo(int64_t first_ms, const std::string& tensor,
              int64_t more_ms = 0) {
  std::string rows = "run world_size=4\n";
  int64_t base = 0;
  for (int i = 0; i < 12; ++i) {
    const auto span = [&](int64_t begin_ms, int64_t end_ms) {
      return std::to_string(base + begin_ms * 1'000'000) + ".." +
             std::to_string(base + end_ms * 1'000'000);
    };
    const int64_t more = i % 2 * more_ms, from = 43 + more, to = 90 + more;
    rows += "step " + span(0, 100 + more) + " thread=0\n";
    rows += "op " + span(0, 40 + more) + " thread=0 aten::mm\n";
    rows += "op " + span(from - 3, from - 2) +
            " thread=0 kind=backward torch::autograd::AccumulateGrad\n";
    rows += "op " + span(from - 1, from) + " thread=0" + tensor +
            " c10d::allreduce_\n";
    rows += "range " + span(from, from + first_ms) +
            " thread=1 kind=collective gloo:all_reduce\n";
    rows += "op " + span(from + first_ms, from + first_ms + 1) + " thread=0" +
            tensor + " c10d::allreduce_\n";
    rows += "range " + span(from + first_ms + 1, to) +
            " thread=1 kind=collective gloo:all_reduce\n";
    rows += "op " + span(to, 100 + more) + " thread=0 aten::add_\n";
    base += (100 + more) * 1'000'000;
  }
  return Analyze(TraceFromText(rows));
}

TEST(ExposedCollectiveTest, FiresOnACpuRunThatWaitsInGloo) {
  const Report report = OnGloo(24, "");
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("for 48.0 ms (48 % of the step)"),
            std::string::npos)
      << finding->evidence;
}

// If a rank's steps vary, the others wait for it only by chance.
TEST(ExposedCollectiveTest, IsLowOnACpuWhereRanksVary) {
  const auto severity = [](const Report& report) {
    const Finding* finding = Find(report, "exposed-collective");
    return finding == nullptr ? FindingSeverity::kNote : finding->severity;
  };
  const std::string bucket = " inputs=((float[4000000]))";
  EXPECT_GT(severity(OnGloo(5, bucket)), FindingSeverity::kLow);
  EXPECT_EQ(severity(OnGloo(5, bucket, 60)), FindingSeverity::kLow);
}

// Six steps: 1 ms of computation, an all-reduce of `elements` floats in 8 ms
// (in one step in `fast_us`), and the optimizer. No computation is left to
// overlap with.
Report Filled(int64_t elements, int64_t fast_us = 8'000,
              int64_t update_us = 100) {
  const int64_t step_us = 9'000 + update_us;
  std::string rows = "run world_size=2\n";
  int correlation = 0;
  const auto span = [](int64_t begin_us, int64_t end_us) {
    return std::to_string(begin_us * 1000) + ".." +
           std::to_string(end_us * 1000) + " ";
  };
  for (int step = 0; step < 6; ++step) {
    const int64_t host = step_us * step, device = host + 100;
    const auto kernel = [&](int64_t at, int64_t from, int64_t to,
                            const std::string& name) {
      const std::string id = " correlation=" + std::to_string(++correlation);
      rows += "runtime_call " + span(host + at, host + at + 4) + "thread=0" +
              id + " cudaLaunchKernel\nkernel " +
              span(device + from, device + to) + "stream=7" + id + " " + name +
              "\n";
    };
    rows += "step " + span(host, host + step_us) +
            "thread=0 number=" + std::to_string(step) + "\n";
    kernel(0, 0, 1'000, "gemm");
    rows += "op " + span(host + 10, host + 40) +
            "thread=0 kind=backward torch::autograd::AccumulateGrad\nop " +
            span(host + 11, host + 39) +
            "thread=0 c10d::allreduce_\ncommunication " +
            span(host + 11, host + 39) +
            "thread=0 in_elements=" + std::to_string(elements) +
            " dtype=Float group_size=2 allreduce\n";
    kernel(20, 1'000, step == 2 ? 1'000 + fast_us : 9'000,
           "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    rows += "range " + span(host + 50, host + 70) +
            "thread=0 kind=optimizer Optimizer.step#SGD.step\n";
    kernel(60, 9'000, step_us, "update");
    rows += "runtime_call " + span(host + 80, host + step_us - 1) +
            "thread=0 correlation=" + std::to_string(++correlation) +
            " cudaDeviceSynchronize\n";
  }
  return Analyze(TraceFromText(rows));
}

TEST(ExposedCollectiveTest, SlowCollectivesThatFillTheStepPointToTheLinks) {
  const Report slow = Filled(4'000'000);  // 2 GB/s
  const Finding* finding = Find(slow, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted) << slow.replay.why_not;
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->severity, FindingSeverity::kMedium);
  EXPECT_NE(finding->fix_python.find("why transfers are slow"),
            std::string::npos);
  const Report unsized = Filled(-1);
  finding = Find(unsized, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 8, 0.2);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->fix_python.find("why transfers are slow"),
            std::string::npos);
  // Below a tenth of the step it may be a last bucket that is fast.
  for (const int64_t update_us : {65'000, 75'000}) {
    const Report report = Filled(-1, 8'000, update_us);
    finding = Find(report, "exposed-collective");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->fix_python.find("why transfers") != std::string::npos,
              update_us == 65'000);
  }
  const Report fast = Filled(40'000'000);  // 20 GB/s
  const Finding* other = Find(fast, "exposed-collective");
  EXPECT_TRUE(other == nullptr ||
              other->fix_python.find("why transfers") == std::string::npos);
}

// One all-reduce shows what the links can do, so the others were waiting.
TEST(ExposedCollectiveTest, TransfersThatAreFastOnceWaitForLateRanks) {
  const Report report = Filled(8'000'000, 1'000);  // 32 GB/s
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted) << report.replay.why_not;
  EXPECT_NE(finding->fix_python.find("find the rank that arrives late"),
            std::string::npos)
      << finding->fix_python;
  EXPECT_GT(finding->gain.expected_ms, 4);
  // At half of the best rate, moving the data explains the times.
  const Report steady = Filled(8'000'000, 4'000);
  const Finding* other = Find(steady, "exposed-collective");
  EXPECT_TRUE(other == nullptr ||
              other->fix_python.find("arrives late") == std::string::npos);
}

// What rank 0 of two says about the program. An all-reduce of 20 MB takes 1 ms.
Report OfProgram(const std::string& step) {
  return Analyze(RunGpuLoop(step, {}, "ranks 2 network=20").ranks.front());
}

std::string Backward(int parameters, const std::string& kernel) {
  return "backward { repeat " + std::to_string(parameters) +
         " { node MmBackward0 10us { op aten::mm 14us { kernel " + kernel +
         " 200us } }; accumulate 5us { op aten::detach 2us } } }\n";
}

std::string Products(int count, const std::string& kernel,
                     const std::string& rest) {
  return "repeat " + std::to_string(count) +
         " { op aten::linear 12us grad { op aten::addmm 14us { kernel " +
         kernel + " 200us } }; " + rest + " }\n";
}
constexpr char kSgemm[] = "ampere_sgemm_128x64_tn";
constexpr char kBf16[] =
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn";
constexpr char kUpdate[] =
    "range optimizer \"Optimizer.step#SGD.step\" { op aten::_fused_sgd_ 90us { "
    "kernel \"void at::native::multi_tensor_apply_kernel<FusedSgd>\" 300us } "
    "}\n"
    "sync device\n";

// Four buckets of 30 MB after 40 products of 0.2 ms: when the last quarter of
// the gradients is made, three buckets can be on their way.
TEST(ExposedCollectiveTest, BucketsAfterBackwardCouldRunDuringIt) {
  const Report report =
      OfProgram(Products(40, kSgemm, "") + Backward(40, kSgemm) +
                "repeat 4 { collective all_reduce 30MB; join }\n" + kUpdate);
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->gain_kind, GainKind::kPredicted) << report.replay.why_not;
  EXPECT_NE(finding->fix_python.find("instead of all-reduces after backward"),
            std::string::npos)
      << finding->fix_python;
  EXPECT_NEAR(finding->gain.expected_ms, 4.5, 0.4) << finding->evidence;
}

// Nothing is left to overlap with the single bucket that holds the gradient
// which is made last.
TEST(ExposedCollectiveTest, ALoneBucketAfterBackwardCannotStartEarlier) {
  const Report report =
      OfProgram(Products(40, kSgemm, "") + Backward(40, kSgemm) +
                "collective all_reduce 24MB; join\n" + kUpdate);
  const Finding* finding = Find(report, "exposed-collective");
  EXPECT_TRUE(finding == nullptr ||
              finding->severity == FindingSeverity::kNote);
}

// An all-reduce whose result the next product needs cannot run beside it.
TEST(ExposedCollectiveTest, ActivationsAreNotOverlapped) {
  const Report report = OfProgram(
      Products(20, kBf16, "collective all_reduce 16MB dtype=BFloat16; join") +
      Backward(20, kBf16) + kUpdate);
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("needs the results of 20 all-reduces at"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->evidence.find("float32"), std::string::npos);
  EXPECT_NE(finding->fix_python.find("sequence parallelism"),
            std::string::npos);
}

TEST(ExposedCollectiveTest, InferenceNeedsItsCollectives) {
  const Report report = OfProgram(
      Products(20, kBf16, "collective all_reduce 16MB dtype=BFloat16; join"));
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_LE(finding->severity, FindingSeverity::kLow);
  EXPECT_NE(finding->fix_python.find("fewer GPUs per replica"),
            std::string::npos);
}

TEST(ExposedCollectiveTest, ActivationsInFloat32CouldMoveHalfTheBytes) {
  const Report report =
      OfProgram(Products(20, kBf16, "collective all_reduce 16MB; join") +
                Backward(20, kBf16) + kUpdate);
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->gain_kind, GainKind::kPredicted) << report.replay.why_not;
  EXPECT_NE(finding->evidence.find("Collectives in float32 are 100 %"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("no .float() before"), std::string::npos);
  // 20 x 16 MB at 20 GB/s take 16 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 8, 0.8);
}

// If the model computes in float32, its collectives are not wider than it.
TEST(ExposedCollectiveTest, AModelInFloat32MovesWhatItComputes) {
  const Report report =
      OfProgram(Products(20, kSgemm, "collective all_reduce 16MB; join") +
                Backward(20, kSgemm) + kUpdate);
  const Finding* finding = Find(report, "exposed-collective");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.find("Collectives in float32"),
            std::string::npos);
}

TEST(CollectiveNamesTest, KernelsSayWhetherTheyReduceFloats) {
  EXPECT_TRUE(ReducesFloat32("ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)"));
  EXPECT_TRUE(ReducesFloat32("ncclKernel_AllReduce_RING_LL_Sum_float(int)"));
  EXPECT_FALSE(ReducesFloat32("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"));
  EXPECT_FALSE(ReducesFloat32("ncclDevKernel_AllReduce_Sum_f8e4m3_RING_LL"));
  EXPECT_FALSE(ReducesFloat32("ncclKernel_AllReduce_RING_LL_Sum_half(int)"));
  EXPECT_FALSE(ReducesFloat32("ncclDevKernel_AllGather_RING_LL(int)"));
}

TEST(CollectiveNamesTest, TypesOfFloats) {
  for (std::string_view type :
       {"Float", "float", "c10::Float", "torch.float32"})
    EXPECT_TRUE(IsFloat32Type(type)) << type;
  for (std::string_view type :
       {"BFloat16", "c10::Half", "Float8_e4m3fn", "Long"})
    EXPECT_FALSE(IsFloat32Type(type)) << type;
}

}  // namespace
}  // namespace stepscope::collectives_test
