#include "context/analysis_context.h"
#include "rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::synchronisation_test {
namespace {

// Five steps in which the GPU and the host take turns: `wait` waits for 4 ms of
// kernels, then the host works for 4 ms and launches the next kernels.
template <typename Wait>
Report TakingTurns(Wait wait, double gpu_us = 4000, double host_us = 4000) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(gpu_us, "gemm");
    run.End();
    wait(run);
    run.Op(host_us, "work");
    run.EndStep();
  }
  return run.Analyzed();
}

// Five steps of 10 ms that keep the GPU busy. The host has launched everything
// after 0.5 ms.
template <typename Wait>
Report GpuBound(Wait wait) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 10; ++i) {
      run.Begin("op", "aten::mm");
      run.Kernel(1000, "gemm");
      run.End();
    }
    wait(run);
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(HostSyncTest, FiresOnItemThatLetsTheGpuRunDry) {
  const Report report = TakingTurns([](GpuText& run) { run.Item(); });
  const Finding* finding = Find(report, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(Promises(report, "host-sync"));
  EXPECT_GE(finding->severity, FindingSeverity::kHigh);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  // Without the read, 4 ms of GPU work and 4 ms of host work overlap.
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.5);
  EXPECT_NE(finding->evidence.find("1 blocking read"), std::string::npos);
  EXPECT_NE(finding->where.find("aten::item > aten::_local_scalar_dense"),
            std::string::npos);
  EXPECT_EQ(finding->examples.size(), 3u);
  EXPECT_TRUE(IsClean(report, "explicit-sync"));
}

// A loop of inference fetches each result after its last launch. Only the next
// step could be launched earlier, if its inputs do not depend on the result.
TEST(HostSyncTest, FetchingTheResultsOfInferenceIsAHint) {
  const auto with = [](bool trains) {
    return TakingTurns([&](GpuText& run) {
      if (trains) run.Range(1, "Optimizer.step#SGD.step", "kind=optimizer");
      run.Begin("op", "aten::copy_");
      run.BlockingCopy(2, "device", "pageable", 8);
      run.End();
    });
  };
  const Report infers = with(false), updates = with(true);
  const Finding* fetched = Find(infers, "host-sync");
  ASSERT_NE(fetched, nullptr);
  EXPECT_EQ(fetched->confidence, Confidence::kHint);
  EXPECT_NE(fetched->evidence.find("after its last launch"), std::string::npos);
  EXPECT_NE(fetched->fix_python.find("on the next inputs"), std::string::npos);
  const Finding* metric = Find(updates, "host-sync");
  ASSERT_NE(metric, nullptr);
  EXPECT_EQ(metric->confidence, Confidence::kProven);
}

TEST(HostSyncTest, ManyReadsAtOnePlaceAreALoop) {
  const auto with = [](int reads, const char* around) {
    return TakingTurns([&](GpuText& run) {
      run.Begin("range", around, "kind=module");
      for (int i = 0; i < reads; ++i) run.Item();
      run.End();
    });
  };
  const auto fix = [](const Report& report) {
    const Finding* finding = Find(report, "host-sync");
    return finding == nullptr ? std::string() : finding->fix_python;
  };
  EXPECT_EQ(fix(with(15, "Decoder")).find("read them together"),
            std::string::npos);
  EXPECT_EQ(fix(with(16, "Decoder")).find("read them together"), 0u);
  EXPECT_EQ(fix(with(16, "SyncBatchNorm")).find("use BatchNorm in place"), 0u);
}

TEST(ExplicitSyncTest, NamesBarriers) {
  const auto with = [](const char* op) {
    return TakingTurns([op](GpuText& run) {
      run.Op(10, op);
      run.Synchronize();
    });
  };
  const Report barrier = with("c10d::barrier"), other = with("aten::view");
  ASSERT_NE(Find(barrier, "explicit-sync"), nullptr);
  ASSERT_NE(Find(other, "explicit-sync"), nullptr);
  EXPECT_NE(Find(barrier, "explicit-sync")->fix_python.find("sync_dist=False"),
            std::string::npos);
  EXPECT_EQ(Find(other, "explicit-sync")->fix_python.find("sync_dist=False"),
            std::string::npos);
}

// After a failed allocation, the allocator frees its cached memory.
TEST(HostSyncTest, StaysSilentAboutWaitsOfTheAllocator) {
  const auto with = [](bool allocates) {
    return TakingTurns([&](GpuText& run) {
      run.Begin("op", "aten::empty");
      if (allocates) run.Call(50, "cudaMalloc");
      run.Synchronize("cudaDeviceSynchronize");
      if (allocates) {
        run.Call(500, "cudaFree");
        run.Call(500, "cudaMalloc");
      }
      run.End();
    });
  };
  EXPECT_TRUE(IsClean(with(true), "host-sync"));
  EXPECT_FALSE(IsClean(with(false), "host-sync"));
}

TEST(HostSyncTest, TakesTheCopyAndTheWaitBehindItForOneRead) {
  const Report report = TakingTurns([](GpuText& run) { run.Item(true); });
  const Finding* finding = Find(report, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("1 blocking read"), std::string::npos);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.5);
  EXPECT_TRUE(IsClean(report, "explicit-sync"));
}

TEST(HostSyncTest, IsANoteWhereTheGpuIsBusyMeanwhile) {
  const Report report = GpuBound([](GpuText& run) { run.Item(); });
  const Finding* finding = Find(report, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
  EXPECT_EQ(finding->status, FindingStatus::kOk);
  EXPECT_NE(finding->evidence.find("little or nothing to gain"),
            std::string::npos);
}

TEST(HostSyncTest, StaysSilentAboutAValueReadEveryHundredSteps) {
  GpuText run;
  for (int step = 0; step < 100; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(1000, "gemm");
    run.End();
    run.Pass(step % 10 == 9 ? 9000 : 10);  // the queue stays short
    if (step == 50) run.Item();
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), "host-sync"));
}

TEST(HostSyncTest, StaysSilentBelowOnePerCentOfTheStep) {
  // 70 us of 8 ms are below the minimum of 0.1 ms; 200 us are above.
  const auto item = [](GpuText& run) { run.Item(); };
  EXPECT_TRUE(IsClean(TakingTurns(item, 60, 8000), "host-sync"));
  EXPECT_TRUE(Promises(TakingTurns(item, 400, 8000), "host-sync"));
}

TEST(HostSyncTest, StaysSilentAboutAsynchronousCopies) {
  const Report report = TakingTurns([](GpuText& run) {
    run.Begin("op", "aten::copy_");
    run.Copy(2, "device", "pinned", 8);
    run.End();
  });
  EXPECT_TRUE(IsClean(report, "host-sync"));
}

TEST(HostSyncTest, NamesResultsWhoseSizeDependsOnValues) {
  const Report report = TakingTurns([](GpuText& run) {
    run.Begin("op", "aten::nonzero");
    run.Synchronize();
    run.End();
  });
  const Finding* finding = Find(report, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("nonzero_static"), std::string::npos);
  EXPECT_TRUE(IsClean(report, "explicit-sync"));
}

TEST(HostSyncTest, NamesPrintingAndTheLineThatPrints) {
  const Report report = TakingTurns([](GpuText& run) {
    run.Begin("python_frame", "train.py(31): step");
    run.Begin("python_frame", "torch/_tensor_str.py(80): _str");
    for (int i = 0; i < 20; ++i) run.Item();
    run.End();
    run.End();
  });
  const Finding* finding = Find(report, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("print every N steps"), std::string::npos);
  EXPECT_NE(finding->where.find("at train.py:31 in step"), std::string::npos);
}

TEST(HostSyncTest, ReadsOnTwoLinesAreTwoPlaces) {
  const Report report = TakingTurns([](GpuText& run) {
    for (const char* line : {"train.py(31): step", "train.py(47): log"}) {
      run.Begin("op", "aten::item", "stack=(\"" + std::string(line) + "\")");
      run.Item();
      run.End();
      run.Begin("op", "aten::mm");
      run.Kernel(300, "gemm");
      run.End();
    }
  });
  const Finding* finding = Find(report, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->where.find("at train.py:31 in step"), std::string::npos)
      << finding->where;
  EXPECT_NE(finding->where.find("at train.py:47 in log"), std::string::npos)
      << finding->where;
}

TEST(HostSyncTest, OwnsTheTimeThatLaunchBoundWouldClaimToo) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(4000, "gemm");
    run.End();
    run.Item();
    for (int i = 0; i < 250; ++i) {  // launches while the GPU would be busy
      run.Begin("op", "aten::add");
      run.Kernel(2, "add");
      run.End();
      run.Pass(2);
    }
    run.EndStep();
  }
  const Report report = run.Analyzed();
  EXPECT_TRUE(Promises(report, "host-sync"));
  const Finding* launching = Find(report, "launch-bound");
  EXPECT_TRUE(launching == nullptr ||
              launching->severity == FindingSeverity::kNote ||
              launching->gain_kind == GainKind::kPredicted);
}

TEST(HostSyncTest, IsAHintIfTheGpuMayWaitForOtherRanksMeanwhile) {
  // One kernel lost its launch, so the replay gives no prediction.
  const auto waiting_for = [](std::string_view kernel) {
    GpuText run;
    run.Line("communication 0..1000 thread=0 allreduce");
    run.Kernel(10, "gemm");
    run.Kernel(4000, kernel);
    run.Item();
    run.Op(4000, "work");
    run.Kernel(10, "gemm");
    run.Line("kernel 200000..200001 lost");
    run.EndStep();
    return run.Analyzed();
  };
  const Report late = waiting_for("ncclDevKernel_AllReduce");
  const Finding* finding = Find(late, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("other ranks"), std::string::npos);
  const Report busy = waiting_for("gemm");
  ASSERT_NE(Find(busy, "host-sync"), nullptr);
  EXPECT_NE(Find(busy, "host-sync")->confidence, Confidence::kHint);
}

TEST(HostSyncTest, CannotLookWithoutAGpuOrWithoutRuntimeCalls) {
  const Report cpu = Analyze(TraceFromText(R"(
    step 0..1000 thread=0 number=0
    op 0..900 thread=0 aten::item
  )"));
  EXPECT_EQ(WhySkipped(cpu, "host-sync"), "no GPU was recorded");
  const Report blind = Analyze(TraceFromText(R"(
    step 0..1000 thread=0 number=0
    kernel 0..900 gemm
  )"));
  EXPECT_NE(WhySkipped(blind, "host-sync").find("runtime"), std::string::npos);
}

// An exchange of rows needs the number of rows for each rank.
TEST(HostSyncTest, SaysThatAnExchangeNeedsTheSizes) {
  const auto with = [](double pause_us) {
    GpuText run;
    run.Line("run world_size=2");
    for (int step = 0; step < 5; ++step) {
      run.Begin("op", "aten::mm");
      run.Kernel(4'000, "gemm");
      run.End();
      run.Item();
      run.Pass(pause_us);
      run.Begin("op", "c10d::alltoall_base_");
      run.OnStream(20);
      run.Kernel(100, "ncclDevKernel_SendRecv");
      run.OnStream(7);
      run.End();
      run.Op(1'000, "aten::view");
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report report = with(100);
  const Finding* finding = Find(report, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("right before an all-to-all"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("TrainPipelineSparseDist"),
            std::string::npos);
  const Report later = with(2'100);
  ASSERT_NE(Find(later, "host-sync"), nullptr);
  EXPECT_EQ(Find(later, "host-sync")->evidence.find("all-to-all"),
            std::string::npos);
}

// A server waits for an event behind the download of its tokens.
TEST(ExplicitSyncTest, IsAHintWhereItFetchesResults) {
  const auto with = [](bool downloads) {
    GpuText run;
    for (int step = 0; step < 5; ++step) {
      run.Begin("op", "aten::mm");
      run.Kernel(4'000, "gemm");
      run.End();
      if (downloads) run.Copy(2, "device", "pinned", 512);
      run.Call(2, "cudaEventRecord");
      run.Synchronize("cudaEventSynchronize");
      run.Pass(1'000);
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report report = with(true);
  const Finding* finding = Find(report, "explicit-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
  const Report other = with(false);
  ASSERT_NE(Find(other, "explicit-sync"), nullptr);
  EXPECT_EQ(Find(other, "explicit-sync")->confidence, Confidence::kProven);
}

TEST(ExplicitSyncTest, FiresOnAWaitInEveryStepThatLetsTheGpuRunDry) {
  const Report report = TakingTurns(
      [](GpuText& run) { run.Synchronize("cudaDeviceSynchronize"); });
  const Finding* finding = Find(report, "explicit-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.5);
  EXPECT_NE(finding->where.find("cudaDeviceSynchronize"), std::string::npos);
  EXPECT_TRUE(IsClean(report, "host-sync"));
}

TEST(ExplicitSyncTest, IsANoteInAGpuBoundLoop) {
  const Report report =
      GpuBound([](GpuText& run) { run.Synchronize("cudaDeviceSynchronize"); });
  const Finding* finding = Find(report, "explicit-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
}

TEST(ExplicitSyncTest, IgnoresTheRecordersWaitAtTheEnd) {
  GpuText run;
  for (int step = 0; step < 3; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(4000, "gemm");
    run.End();
    run.Pass(1000);
    if (step == 2) run.Synchronize("cudaDeviceSynchronize");
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), "explicit-sync"));
}

// torch.profiler and Kineto both synchronise when the recording stops. The
// program itself did so only in its first step.
TEST(ExplicitSyncTest, IgnoresTheRecordersWaitsAfterOneOfTheProgram) {
  GpuText run;
  for (int step = 0; step < 3; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(4000, "gemm");
    run.End();
    if (step == 0) run.Synchronize("cudaEventSynchronize");
    run.Pass(1000);
    if (step == 2) run.Synchronize("cudaDeviceSynchronize");
    if (step == 2) run.Synchronize("cudaDeviceSynchronize");
    run.EndStep();
  }
  const Trace trace = run.Build();
  const AnalysisContext context(trace);
  EXPECT_EQ(std::ranges::count(context.waits.all, true, &HostWait::is_last), 2);
  EXPECT_TRUE(IsClean(Analyze(trace), "explicit-sync"));
}

TEST(ExplicitSyncTest, IgnoresThreadsThatLaunchNothing) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(1000, "gemm");
    run.End();
    const int64_t begin = run.now_ns();
    run.Pass(5000);
    run.Line("runtime_call " + std::to_string(begin) + ".." +
             std::to_string(begin + 4'900'000) +
             " thread=1 cudaEventSynchronize");
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), "explicit-sync"));
}

// A step with a backward pass on an autograd thread, then `between`, then the
// optimizer. 4 ms of host work follow.
template <typename Between>
Report Training(Between between, bool optimizer_first = false) {
  GpuText run;
  const auto optimizer = [&] {
    run.Begin("range", "Optimizer.step#SGD.step", "kind=optimizer");
    run.Begin("op", "aten::_foreach_add_");
    run.Kernel(10, "multi_tensor_apply");
    run.End();
    run.End();
  };
  for (int step = 0; step < 5; ++step) {
    run.OnThread(1);
    run.Begin("op",
              "autograd::engine::evaluate_function: "
              "torch::autograd::AccumulateGrad",
              "kind=backward");
    run.Begin("op", "torch::autograd::AccumulateGrad", "kind=backward");
    run.Kernel(4000, "gemm");
    run.End();
    run.End();
    run.OnThread(0);
    run.Pass(10);
    if (optimizer_first) optimizer();
    between(run);
    if (!optimizer_first) optimizer();
    run.Op(4000, "work");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(GradClipSyncTest, FiresOnANormThatIsReadBack) {
  const Report report = Training([](GpuText& run) {
    run.Begin("op", "aten::linalg_vector_norm");
    run.Kernel(10, "reduce");
    run.End();
    run.Item();
  });
  const Finding* finding = Find(report, "grad-clip-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.6);
  EXPECT_NE(finding->fix_cpp.find("_foreach_norm"), std::string::npos);
  // The norm is computed per tensor, and there is only one parameter.
  EXPECT_NE(finding->evidence.find("tensor by tensor"), std::string::npos);
  EXPECT_TRUE(IsClean(report, "host-sync"));
}

TEST(GradClipSyncTest, NamesTheScaler) {
  const Report report = Training([](GpuText& run) {
    run.Begin("op", "aten::_amp_foreach_non_finite_check_and_unscale_");
    run.Kernel(10, "multi_tensor_apply");
    run.End();
    run.Item();
  });
  const Finding* finding = Find(report, "grad-clip-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("bfloat16"), std::string::npos);
}

void Unscale(GpuText& run) {
  run.Begin("op", "aten::_amp_foreach_non_finite_check_and_unscale_");
  run.Kernel(10, "multi_tensor_apply");
  run.End();
}

void Norm(GpuText& run) {
  run.Begin("op", "aten::linalg_vector_norm");
  run.Kernel(10, "reduce");
  run.End();
}

TEST(GradClipSyncTest, AfterClippingTheLastReadIsTheScalers) {
  const Report report = Training([](GpuText& run) {
    Unscale(run);
    Norm(run);
    run.Item();
  });
  const Finding* finding = Find(report, "grad-clip-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("scaler"), std::string::npos)
      << finding->evidence;
}

TEST(GradClipSyncTest, ALoopThatReadsEachNormIsNotTheScaler) {
  const Report report = Training([](GpuText& run) {
    Unscale(run);
    for (int parameter = 0; parameter < 30; ++parameter) {
      Norm(run);
      run.Item();
    }
    run.Item();
  });
  const Finding* finding = Find(report, "grad-clip-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("31 blocking reads of the gradients' norm"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.stack"), std::string::npos);
}

TEST(GradClipSyncTest, StaysSilentAboutPythonsDefaultClipping) {
  const Report report = Training([](GpuText& run) {
    run.Begin("op", "aten::_foreach_norm");
    run.Kernel(10, "reduce");
    run.End();
    run.Begin("op", "aten::_foreach_mul_");
    run.Kernel(10, "multi_tensor_apply");
    run.End();
  });
  EXPECT_TRUE(IsClean(report, "grad-clip-sync"));
}

TEST(GradClipSyncTest, LeavesMetricsReadAfterTheOptimizerToHostSync) {
  const Report report = Training(
      [](GpuText& run) {
        run.Begin("op", "aten::linalg_vector_norm");
        run.Kernel(10, "reduce");
        run.End();
        run.Item();
      },
      true);
  EXPECT_TRUE(IsClean(report, "grad-clip-sync"));
  EXPECT_TRUE(Promises(report, "host-sync"));
}

TEST(GradClipSyncTest, LeavesALossReadAfterBackwardToHostSync) {
  const Report report = Training([](GpuText& run) { run.Item(); });
  EXPECT_TRUE(IsClean(report, "grad-clip-sync"));
  EXPECT_TRUE(Promises(report, "host-sync"));
}

}  // namespace
}  // namespace stepscope::synchronisation_test
