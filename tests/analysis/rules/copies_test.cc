#include "rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::copies_test {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Five steps, each with an upload that blocks the host, then a kernel.
Report Uploading(double copy_us, int64_t bytes,
                 std::string_view source = "pageable", double kernel_us = 4000,
                 std::string_view device = "") {
  GpuText run;
  run.Line(device);
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::copy_");
    run.BlockingCopy(copy_us, source, "device", bytes);
    run.End();
    run.Kernel(kernel_us, "gemm");
    run.Pass(100);
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(H2dPageableTest, FiresOnLargeUploadsFromPageableMemory) {
  const Report report =
      Uploading(4000, 20'000'000, "pageable", 4000,
                "device vendor=Nvidia compute_major=8 NVIDIA A100");
  const Finding* finding = Find(report, "h2d-pageable");
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(Promises(report, "h2d-pageable"));
  EXPECT_GE(finding->severity, FindingSeverity::kHigh);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NE(finding->evidence.find("1 upload per step from pageable memory: "
                                   "20.0 MB in 4.00 ms at 5.00 GB/s"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->assumption.find("24.0 GB/s"), std::string::npos)
      << finding->assumption;
  EXPECT_NE(finding->fix_cpp.find("pinned_memory(true)"), std::string::npos);
}

TEST(H2dPageableTest, UsesTheRateOfTheRunsOwnPinnedCopies) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::copy_");
    run.BlockingCopy(4000, "pageable", "device", 20'000'000);
    run.Copy(1000, "pinned", "device", 10'000'000);
    run.End();
    run.Kernel(4000, "gemm");
    run.EndStep();
  }
  const Report report = run.Analyzed();
  const Finding* finding = Find(report, "h2d-pageable");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->assumption.find("10.0 GB/s, as measured in this run"),
            std::string::npos)
      << finding->assumption;
}

TEST(H2dPageableTest, FiresFromOneMebibytePerStep) {
  EXPECT_TRUE(IsClean(Uploading(2000, kMiB - 1), "h2d-pageable"));
  EXPECT_NE(Find(Uploading(2000, kMiB), "h2d-pageable"), nullptr);
}

// Steps with 20 uploads that take 300 us each. A kernel of 200 us follows each
// of them, or all of them.
Report UploadingWeights(bool alternate, int sizes) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 20; ++i) {
      run.Begin("op", "aten::copy_");
      run.BlockingCopy(300, "pageable", "device", (1 + i % sizes) * kMiB);
      run.End();
      if (alternate) run.Kernel(200, "gemm");
    }
    for (int i = 0; !alternate && i < 20; ++i) run.Kernel(200, "gemm");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(H2dPageableTest, UploadsThatAlternateWithKernelsAreWeights) {
  const Report weights = UploadingWeights(true, 5);
  const Finding* finding = Find(weights, "h2d-pageable");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("offload"), std::string::npos);
  // Without the uploads, 20 kernels of 200 us remain.
  EXPECT_NEAR(weights.steps.mean_ms - finding->gain.expected_ms, 4, 0.2);
  // A batch of many tensors, and batches of many passes.
  for (const Report& other :
       {UploadingWeights(false, 5), UploadingWeights(true, 3)}) {
    ASSERT_NE(Find(other, "h2d-pageable"), nullptr);
    EXPECT_EQ(Find(other, "h2d-pageable")->fix_python.find("offload"),
              std::string::npos);
  }
}

// Models that move to the device and back in each step: 20 uploads of 300 us,
// kernels for 4 ms, and 20 downloads.
Report MovingModels(bool back, bool trains) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 20; ++i) {
      run.Begin("op", "aten::copy_");
      run.BlockingCopy(300, "pageable", "device", (1 + i % 5) * kMiB);
      run.End();
    }
    run.Kernel(4000, "gemm");
    for (int i = 0; i < 20; ++i) {
      run.Begin("op", "aten::copy_");
      run.BlockingCopy(300, "device", "pageable",
                       (back ? 1 + i % 5 : 7) * kMiB);
      run.End();
    }
    if (trains) run.Range(1, "Optimizer.step#SGD.step", "kind=optimizer");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(H2dPageableTest, UploadsThatAreDownloadedAgainAreWeights) {
  const Report moving = MovingModels(true, false);
  const Finding* finding = Find(moving, "h2d-pageable");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("enable_model_cpu_offload"),
            std::string::npos);
  // Without the copies, the kernel remains.
  EXPECT_NEAR(moving.steps.mean_ms - finding->gain.expected_ms, 4, 0.2);
  EXPECT_TRUE(IsClean(moving, "d2h-pageable"));
  // Results of other sizes, and an optimizer on the host.
  for (const Report& other :
       {MovingModels(false, false), MovingModels(true, true)}) {
    ASSERT_NE(Find(other, "h2d-pageable"), nullptr);
    EXPECT_EQ(Find(other, "h2d-pageable")->fix_python.find("offload"),
              std::string::npos);
    EXPECT_FALSE(IsClean(other, "d2h-pageable"));
  }
}

TEST(H2dPageableTest, StaysSilentAboutPinnedMemory) {
  EXPECT_TRUE(IsClean(Uploading(4000, 20'000'000, "pinned"), "h2d-pageable"));
}

TEST(H2dPageableTest, StaysSilentAboutManySmallUploads) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 45; ++i) {  // 7 kB in total
      run.Begin("op", "aten::copy_");
      run.Copy(2, "pageable", "device", 156);
      run.Synchronize();
      run.End();
    }
    run.Kernel(20'000, "gemm");
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), "h2d-pageable"));
}

TEST(H2dPageableTest, StaysSilentAboutAModelThatIsLoadedOnce) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    if (step == 0) run.BlockingCopy(3000, "pageable", "device", 100 * kMiB);
    run.Kernel(4000, "gemm");
    run.Synchronize();
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), "h2d-pageable"));
}

TEST(H2dPageableTest, DoesNotCallUnknownMemoryPageable) {
  const Report report = Uploading(4000, 20'000'000, "host");
  EXPECT_NE(WhySkipped(report, "h2d-pageable").find("pinned"),
            std::string::npos);
}

// Five steps with 4 ms of kernels, an upload of a few bytes, and 4 ms of host
// work.
Report TinyUploads(bool blocking, bool queued) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    run.Kernel(4000, "gemm");
    if (!queued) run.Pass(5000);
    run.Begin("op", "aten::copy_");
    run.Copy(2, blocking ? "pageable" : "pinned", "device", 8);
    if (blocking) run.Synchronize();
    run.End();
    run.Op(4000, "aten::relu");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(H2dBlockingTest, FiresOnATinyUploadThatDrainsTheQueue) {
  const Report report = TinyUploads(true, true);
  const Finding* finding = Find(report, "h2d-blocking");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.5);
  EXPECT_NE(finding->where.find("aten::copy_ (4.0"), std::string::npos)
      << finding->where;
  EXPECT_TRUE(IsClean(report, "host-sync"));
  EXPECT_TRUE(IsClean(report, "explicit-sync"));
}

TEST(H2dBlockingTest, StaysSilentWithNothingQueuedBeforeTheUpload) {
  EXPECT_TRUE(IsClean(TinyUploads(true, false), "h2d-blocking"));
}

// While the device is idle, the driver copies to its own buffer.
TEST(H2dBlockingTest, WaitsForNothingWhileTheDeviceIsIdle) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(4000, "gemm");
    run.End();
    run.Item();
    run.Begin("op", "aten::copy_");
    run.BlockingCopy(100, "pageable", "device", 200'000, /*before_us=*/2000);
    run.End();
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), "h2d-blocking"));
}

TEST(H2dBlockingTest, StaysSilentWhereNobodyWaits) {
  EXPECT_TRUE(IsClean(TinyUploads(false, true), "h2d-blocking"));
}

TEST(H2dBlockingTest, IgnoresTheQueueThatWarmUpLeftBehind) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    if (step == 0) run.Kernel(3000, "gemm");
    run.Begin("op", "aten::copy_");
    run.BlockingCopy(1000, "pageable", "device", 500'000);
    run.End();
    run.Kernel(1000, "gemm");
    run.Op(8000, "aten::relu");
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), "h2d-blocking"));
}

// A GPU-bound loop that uploads its next batch from pinned memory.
Report Prefetching(int stream, double copy_us, bool has_earlier = false) {
  GpuText run;
  if (has_earlier) {
    run.Line(
        "copy 0..1000000 stream=7 source=pinned destination=device "
        "bytes=20000000");
    run.Pass(1000);
  }
  for (int step = 0; step < 5; ++step) {
    run.OnStream(stream);
    run.Copy(copy_us, "pinned", "device", 20'000'000);
    run.OnStream(7);
    for (int i = 0; i < 10; ++i) run.Kernel(500, "gemm");
    run.Synchronize("cudaEventSynchronize");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(H2dBlockingTest, FiresOnUploadsInLineWithTheKernels) {
  const Report report = Prefetching(7, 1000);
  const Finding* finding = Find(report, "h2d-blocking");
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(Promises(report, "h2d-blocking"));
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.2);
  EXPECT_NE(finding->fix_cpp.find("recordStream"), std::string::npos);
  EXPECT_EQ(finding->examples.size(), 3u);
}

// Every guide ends with such uploads.
TEST(H2dBlockingTest, IsLowBelowATenthOfTheStep) {
  const Report small = Prefetching(7, 500), large = Prefetching(7, 2000);
  ASSERT_NE(Find(small, "h2d-blocking"), nullptr);
  ASSERT_NE(Find(large, "h2d-blocking"), nullptr);
  EXPECT_EQ(Find(small, "h2d-blocking")->severity, FindingSeverity::kLow);
  EXPECT_GE(Find(large, "h2d-blocking")->severity, FindingSeverity::kHigh);
}

// The host ran ahead, so uploads issued before the recording run in it.
TEST(H2dBlockingTest, DoesNotCountTheUploadOfAnEarlierStep) {
  const Report report = Prefetching(7, 1000, /*has_earlier=*/true);
  const Finding* finding = Find(report, "h2d-blocking");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("1 upload per step (1.00 ms)"),
            std::string::npos)
      << finding->evidence;
}

TEST(H2dBlockingTest, StaysSilentAboutAPrefetcherOnItsOwnStream) {
  EXPECT_TRUE(IsClean(Prefetching(20, 1000), "h2d-blocking"));
}

TEST(H2dBlockingTest, StaysSilentBelowTheGate) {
  EXPECT_TRUE(IsClean(Prefetching(7, 90), "h2d-blocking"));
  EXPECT_FALSE(IsClean(Prefetching(7, 120), "h2d-blocking"));
}

TEST(H2dBlockingTest, CannotLookWithoutAGpu) {
  EXPECT_EQ(
      WhySkipped(Analyze(TraceFromText("step 0..1000 thread=0 number=0\n")),
                 "h2d-blocking"),
      "no GPU was recorded");
}

// Five steps that each end with a download of 20 MB.
Report Downloading(std::string_view memory, int64_t bytes = 20'000'000) {
  GpuText run;
  run.Line("device vendor=Nvidia compute_major=8 NVIDIA A100");
  for (int step = 0; step < 5; ++step) {
    run.Kernel(4000, "gemm");
    run.Begin("op", "aten::copy_");
    run.BlockingCopy(4000, "device", memory, bytes);
    run.End();
    run.Pass(100);
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(D2hPageableTest, FiresOnLargeDownloadsIntoPageableMemory) {
  const Report report = Downloading("pageable");
  const Finding* finding = Find(report, "d2h-pageable");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("1 download per step into pageable memory: "
                                   "20.0 MB in 4.00 ms at 5.00 GB/s"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("pin_memory=True"), std::string::npos);
  EXPECT_TRUE(IsClean(report, "h2d-pageable"));
}

TEST(D2hPageableTest, StaysSilentAboutPinnedMemoryAndFewBytes) {
  EXPECT_TRUE(IsClean(Downloading("pinned"), "d2h-pageable"));
  EXPECT_TRUE(IsClean(Downloading("pageable", kMiB - 1), "d2h-pageable"));
}

struct OwnWork {
  double us = 3'000;  // after each copy, outside ops
  int copies = 1;     // per step, 20 MB in total
  bool upload = false;
  bool busy = false;       // another stream has work all the time
  bool in_op = true;       // an op makes the copies
  int thread = 0;          // that makes the copies
  std::string range = "";  // of the work, instead of none
  bool by_op = false;      // an op on the host does the work
};

// Five steps that each compute, copy from or to pageable memory, and run own
// code before the next op.
Report Working(const OwnWork& work) {
  GpuText run;
  run.Line("device vendor=Nvidia compute_major=8 NVIDIA A100");
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(4000, "gemm");
    if (work.busy) {
      run.OnStream(9);
      run.Kernel(8300 + work.us, "gemm");
      run.OnStream(7);
    }
    run.End();
    for (int i = 0; i < work.copies; ++i) {
      run.OnThread(work.thread);
      if (work.in_op) run.Begin("op", "aten::copy_");
      run.BlockingCopy(4000. / work.copies, work.upload ? "pageable" : "device",
                       work.upload ? "device" : "pageable",
                       20'000'000 / work.copies);
      if (work.in_op) run.End();
      run.OnThread(0);
      if (work.by_op) {
        run.Op(work.us, "aten::_to_copy");
      } else if (!work.range.empty()) {
        run.Range(work.us, "next", work.range);
      } else {
        run.Pass(work.us);
      }
      run.Begin("op", "aten::add");
      run.Kernel(10, "add");
      run.End();
    }
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(D2hPageableTest, OwnCodeRightAfterADownloadCountsIntoIt) {
  const Report without = Working({.us = 0}), with = Working({});
  const Finding* short_one = Find(without, "d2h-pageable");
  const Finding* finding = Find(with, "d2h-pageable");
  ASSERT_NE(short_one, nullptr);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(short_one->confidence, Confidence::kHint);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NEAR(finding->gain.expected_ms, short_one->gain.expected_ms + 3, 0.02);
  EXPECT_NE(finding->evidence.find("the GPU is idle for another 3.00 ms"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("logits.argmax(1).cpu()"),
            std::string::npos);
}

TEST(D2hPageableTest, OpsOnTheHostRightAfterADownloadCountIntoIt) {
  // host-compute counts the ops and the download before them.
  const Report by_op = Working({.by_op = true});
  const Finding* finding = Find(by_op, "host-compute");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("block it for another 4.0"),
            std::string::npos)
      << finding->evidence;
  EXPECT_GT(finding->gain.expected_ms, 6.9);
  EXPECT_EQ(Find(by_op, "d2h-pageable"), nullptr);
  // Taking the next batch has nothing to do with the results of this one.
  const Report loading = Working({.range = "kind=loader"});
  ASSERT_NE(Find(loading, "d2h-pageable"), nullptr);
  EXPECT_EQ(Find(loading, "d2h-pageable")->confidence, Confidence::kHint);
}

// The own code takes longer than the download.
TEST(D2hPageableTest, PythonBetweenOpsYieldsToOwnCodeOnADownload) {
  const Report report = Working({.us = 9'000});
  EXPECT_EQ(Find(report, "python-between-ops"), nullptr);
  EXPECT_EQ(std::ranges::count(report.superseded,
                               "python-between-ops (by d2h-pageable)"),
            1);
}

// Eight pauses, because a single one of that length is too short to report.
TEST(D2hPageableTest, PausesOfTheFrameworkAreNotOwnCode) {
  const Report longer = Working({.us = 51, .copies = 8});
  const Report report = Working({.us = 50, .copies = 8});
  ASSERT_NE(Find(longer, "d2h-pageable"), nullptr);
  ASSERT_NE(Find(report, "d2h-pageable"), nullptr);
  EXPECT_EQ(Find(longer, "d2h-pageable")->confidence, Confidence::kStrong);
  EXPECT_EQ(Find(report, "d2h-pageable")->confidence, Confidence::kHint);
}

TEST(D2hPageableTest, OwnCodeCountsOnlyWhereTheDownloadLeadsToIt) {
  // The GPU is busy; the pause gains nothing; another thread downloads, whose
  // pauses hold up nobody; or nothing shows who downloads.
  for (const OwnWork& work : {OwnWork{.busy = true}, OwnWork{.us = 60},
                              OwnWork{.thread = 1}, OwnWork{.in_op = false}}) {
    const Report report = Working(work);
    const Finding* finding = Find(report, "d2h-pageable");
    ASSERT_NE(finding, nullptr) << work.us << work.busy << work.thread;
    EXPECT_EQ(finding->confidence, Confidence::kHint)
        << work.us << work.busy << work.thread;
  }
}

// The host does not need an upload for what it runs next.
TEST(H2dPageableTest, DoesNotCountOwnCodeAfterAnUpload) {
  const Report report = Working({.upload = true});
  const Finding* finding = Find(report, "h2d-pageable");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.find("Right after it"), std::string::npos)
      << finding->evidence;
}

// Five steps with an upload of 20 MB from pinned memory in `copy_us`. A kernel
// follows, or runs at the same time on another stream.
Report OverTheBus(double copy_us, bool beside = false) {
  GpuText run;
  run.Line("device vendor=Nvidia compute_major=8 NVIDIA A100");
  for (int step = 0; step < 5; ++step) {
    run.Copy(copy_us, "pinned", "device", 20'000'000);
    if (beside) run.OnStream(9);
    run.Kernel(8000, "gemm");
    run.OnStream(0);
    run.Synchronize();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(SlowBusTest, FiresBelowHalfOfTheUsualRate) {
  const Report report = OverTheBus(4000);
  const Finding* finding = Find(report, "slow-bus");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find(
                "20.0 MB in 4.00 ms of copying, run at 5.00 GB/s; the "
                "bus of this device usually carries about "
                "24.0"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(finding->gain.expected_ms, 4 * (1 - 5.0 / 24), 0.01);
  EXPECT_TRUE(IsClean(OverTheBus(20e6 / 12.1e3), "slow-bus"));
}

TEST(SlowBusTest, KernelsHideTheCopies) {
  EXPECT_TRUE(IsClean(OverTheBus(4000, true), "slow-bus"));
}

}  // namespace
}  // namespace stepscope::copies_test
