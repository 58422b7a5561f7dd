// Replay of runs with a GPU, against loops whose times are known.
#include "replay/gpu/device_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "analysis/gpu_loop.h"
#include "context/analysis_context.h"

namespace stepscope {
namespace {

constexpr int kSteps = 6;

using Body = std::function<void(GpuLoop&)>;

// Time per step of the loop, in us.
double Truth(const Body& body, int steps = kSteps) {
  GpuLoop loop;
  for (int i = 0; i < steps; ++i) {
    body(loop);
    loop.EndStep();
  }
  return loop.mean_step_us();
}

struct Recorded {
  explicit Recorded(const Body& body, int steps = kSteps)
      : trace(Make(body, steps)), measured(trace) {}
  static Trace Make(const Body& body, int steps) {
    GpuLoop loop;
    for (int i = 0; i < steps; ++i) {
      body(loop);
      loop.EndStep();
    }
    return loop.Finish();
  }
  const ReplayCheck& check() const { return measured.replay.check(); }
  double After(const Edit& edit,
               const ReplayParameters& parameters = {}) const {
    return measured.replay.StepNs(edit, parameters) / 1000;
  }
  // The runtime calls of that name.
  std::vector<RowId> Calls(std::string_view name) const {
    std::vector<RowId> rows;
    for (RowId row = 0; row < trace.runtime_calls().size(); ++row) {
      if (trace.name(trace.runtime_calls()[row].name) == name) {
        rows.push_back(row);
      }
    }
    return rows;
  }
  std::vector<ActivityRef> Kernels(std::string_view name) const {
    std::vector<ActivityRef> refs;
    for (RowId row = 0; row < trace.kernels().size(); ++row) {
      if (trace.name(trace.kernels()[row].name) == name) {
        refs.push_back({ActivityTable::kKernel, row});
      }
    }
    return refs;
  }

  Trace trace;
  AnalysisContext measured;
};

void ManyKernels(GpuLoop& loop, int count, double us, double host_us) {
  for (int i = 0; i < count; ++i) {
    loop.Op("aten::add", host_us, [&] { loop.Kernel(us); });
  }
}

TEST(DeviceReplayTest, IsValidForAHostBoundLoop) {
  const Recorded run([](GpuLoop& loop) { ManyKernels(loop, 50, 4, 20); });
  EXPECT_TRUE(run.check().valid) << run.check().why_not;
  EXPECT_NEAR(run.check().no_edit_error, 0, 1e-3);
  EXPECT_NEAR(run.check().limit_error, 0, 0.02);
}

// The host runs ahead, streams wait for each other, and each step reads back.
Body Mixed(double kernel_us) {
  return [=](GpuLoop& loop) {
    ManyKernels(loop, 20, kernel_us, 6);
    loop.StreamWait(20, 7);
    loop.Kernel(kernel_us * 3, 20, "other_kernel");
    loop.StreamWait(7, 20);
    ManyKernels(loop, 20, kernel_us, 6);
    loop.ReadBack(10);
    loop.Host(50);
  };
}

TEST(DeviceReplayTest, OfManyStepsARepresentativePartIsReplayed) {
  constexpr int kMany = 300;
  const Recorded run(Mixed(30), kMany);
  const DeviceProgram& program = *run.measured.replay.device();
  EXPECT_EQ(program.steady.size(), 128u);
  EXPECT_LT(program.activities.size(), run.trace.kernels().size() / 2);
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  EXPECT_NEAR(run.check().no_edit_error, 0, 1e-3);
  Edit edit;
  for (const char* name : {"some_kernel", "other_kernel"}) {
    for (const ActivityRef& ref : run.Kernels(name)) {
      edit.scales.push_back({.activity = ref, .factor = 0.5});
    }
  }
  std::ranges::sort(edit.scales, {}, &ActivityScale::work);
  const double truth = Truth(Mixed(15), kMany);
  EXPECT_NEAR(run.After(edit), truth, 0.01 * truth);
  // The critical path covers the same steps.
  const std::vector<PathPart> parts = SumPath(
      run.trace, run.measured.replayed.steps, run.measured.CriticalPath());
  double path_ms = 0;
  for (const PathPart& part : parts) path_ms += part.ms_per_step;
  EXPECT_NEAR(path_ms, run.measured.stats.mean_ms,
              0.01 * run.measured.stats.mean_ms);
}

// Nothing waits for the device, so it lags several steps behind the host, and
// the replayed part begins in the middle of the lag.
TEST(DeviceReplayTest, APartOfALoopWithABacklogIsRepresentative) {
  constexpr int kMany = 300;
  const auto body = [](double us) {
    return [us](GpuLoop& loop) { ManyKernels(loop, 20, us, 5); };
  };
  const Recorded run(body(60), kMany);
  EXPECT_EQ(run.measured.replay.device()->steady.size(), 128u);
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  Edit edit;
  for (const ActivityRef& ref : run.Kernels("some_kernel")) {
    edit.scales.push_back({.activity = ref, .factor = 0.3});
  }
  const double truth = Truth(body(18), kMany);
  EXPECT_NEAR(run.After(edit), truth, 0.05 * truth);
}

TEST(DeviceReplayTest, IsValidForADeviceBoundLoop) {
  const Recorded run([](GpuLoop& loop) {
    ManyKernels(loop, 50, 60, 5);
    loop.ReadBack(3);
  });
  EXPECT_TRUE(run.check().valid) << run.check().why_not;
  EXPECT_NEAR(run.check().no_edit_error, 0, 1e-3);
}

TEST(DeviceReplayTest, RefusesARunOfOneStep) {
  GpuLoop loop;
  ManyKernels(loop, 50, 60, 5);
  loop.EndStep();
  const Trace trace = loop.Finish();
  const AnalysisContext measured(trace);
  EXPECT_FALSE(measured.replay.check().valid);
  EXPECT_NE(measured.replay.check().why_not.find("one step"),
            std::string::npos);
}

TEST(DeviceReplayTest, FasterKernelsWinNothingWhereTheHostIsLate) {
  const Recorded run([](GpuLoop& loop) { ManyKernels(loop, 50, 4, 20); });
  Edit edit;
  for (const ActivityRef& work : run.Kernels("some_kernel")) {
    edit.scales.push_back({work, 0.5});
  }
  EXPECT_NEAR(run.After(edit), run.After({}), 0.02 * run.After({}));
}

TEST(DeviceReplayTest, FasterKernelsWinTheirTimeWhereTheDeviceIsBusy) {
  const auto body = [](double us) {
    return [us](GpuLoop& loop) {
      ManyKernels(loop, 50, us, 5);
      loop.ReadBack(3);
    };
  };
  const Recorded run(body(60));
  Edit edit;
  for (const ActivityRef& work : run.Kernels("some_kernel")) {
    edit.scales.push_back({work, 0.5});
  }
  EXPECT_NEAR(run.After(edit), Truth(body(30)), 0.02 * Truth(body(30)));
  EXPECT_NEAR(run.After(edit, {.scale_effect = 0.5}), Truth(body(45)),
              0.02 * Truth(body(45)));
}

// In such a loop only the launches wait, for room in the queue.
TEST(DeviceReplayTest, FasterKernelsWinTheirTimeBehindAFullQueue) {
  const auto body = [](double us) {
    return [us](GpuLoop& loop) { ManyKernels(loop, 700, us, 5); };
  };
  const Recorded run(body(60));
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  Edit edit;
  for (const ActivityRef& work : run.Kernels("some_kernel")) {
    edit.scales.push_back({work, 0.5});
  }
  EXPECT_NEAR(run.After(edit), Truth(body(30)), 0.03 * Truth(body(30)));
}

// Launches that waited for room still take their own time without the wait.
TEST(DeviceReplayTest, LaunchesLimitTheStepOnceTheDeviceIsFaster) {
  const auto body = [](double us) {
    return [us](GpuLoop& loop) { ManyKernels(loop, 700, us, 5); };
  };
  const Recorded run(body(60));
  EXPECT_NEAR(run.check().limit_error, 0, 0.02);
  Edit edit;
  for (const ActivityRef& work : run.Kernels("some_kernel")) {
    edit.scales.push_back({work, 0.05});
  }
  EXPECT_NEAR(run.After(edit), Truth(body(3)), 0.05 * Truth(body(3)));
}

TEST(DeviceReplayTest, AReadInTheMiddleCostsTheHostItsHeadStart) {
  const auto body = [](bool reads) {
    return [reads](GpuLoop& loop) {
      ManyKernels(loop, 20, 50, 10);
      if (reads) loop.ReadBack(2);
      ManyKernels(loop, 40, 8, 20);
    };
  };
  const Recorded run(body(true));
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  const double truth = Truth(body(false));
  ASSERT_LT(truth, 0.85 * run.After({}));
  EXPECT_NEAR(run.After({.no_wait = run.Calls("cudaMemcpyAsync")}), truth,
              0.05 * truth);
}

TEST(DeviceReplayTest, AReadBehindABusyDeviceCostsNothing) {
  const Recorded run([](GpuLoop& loop) {
    ManyKernels(loop, 50, 60, 5);
    loop.ReadBack(3);
  });
  const double after = run.After({.no_wait = run.Calls("cudaMemcpyAsync")});
  EXPECT_GT(after, 0.95 * run.After({}));
}

TEST(DeviceReplayTest, BatchesMadeByWorkersAreTakenAtOnce) {
  const auto body = [](double load_us) {
    return [load_us](GpuLoop& loop) {
      loop.Load(load_us);
      ManyKernels(loop, 50, 50, 60);
      loop.ReadBack(3);
    };
  };
  const Recorded run(body(2000));
  const double truth = Truth(body(50));
  // Busy workers slow the training thread a little.
  const double after = run.After({.workers = 2});
  EXPECT_GE(after, 0.99 * truth);
  EXPECT_LE(after, 1.15 * truth);
}

TEST(DeviceReplayTest, TooFewWorkersLimitTheStep) {
  const Recorded run([](GpuLoop& loop) {
    loop.Load(9000);
    ManyKernels(loop, 20, 50, 60);
  });
  EXPECT_NEAR(run.After({.workers = 2}), 4500, 45);
  EXPECT_LT(run.After({.workers = 8}), 2000);
}

TEST(DeviceReplayTest, ACutKeepsItsKeepNs) {
  const auto body = [](double us) {
    return [us](GpuLoop& loop) {
      ManyKernels(loop, 20, 4, 20);
      loop.Range(RangeKind::kUser, "logging", [&] { loop.Host(us); });
      ManyKernels(loop, 20, 4, 20);
    };
  };
  const Recorded run(body(800));
  Edit edit;
  for (const Range& range : run.trace.ranges()) {
    edit.cuts.push_back(
        {range.thread, {range.begin_ns, range.end_ns}, 100'000});
  }
  ASSERT_EQ(edit.cuts.size(), kSteps);
  EXPECT_NEAR(run.After(edit), Truth(body(100)), 2);
}

TEST(DeviceReplayTest, DispatchIsCappedPerLaunch) {
  const auto body = [](double op_us) {
    return [op_us](GpuLoop& loop) {
      loop.Host(300);  // the user's own code stays
      ManyKernels(loop, 50, 4, op_us);
    };
  };
  const Recorded run(body(40));
  // 2 us for both the op and its launch, which costs 5 here: 45 -> 2.
  const double truth = 300 + 50 * 2;
  EXPECT_NEAR(run.After({.dispatch_ns = 2000}), truth, 0.1 * truth);
}

TEST(DeviceReplayTest, AStreamWaitsForAnotherOnlyUntilTheEdgeIsGone) {
  const auto body = [](bool waits) {
    return [waits](GpuLoop& loop) {
      loop.Kernel(500, 20, "ncclKernel_AllReduce");
      if (waits) loop.StreamWait(7, 20);
      ManyKernels(loop, 10, 60, 5);
      loop.DeviceSync();
    };
  };
  const Recorded run(body(true));
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  const double truth = Truth(body(false));
  ASSERT_LT(truth, 0.75 * run.After({}));
  EXPECT_NEAR(run.After({.no_dependency = run.Kernels("some_kernel")}), truth,
              0.03 * truth);
  EXPECT_NEAR(run.After({.side_stream = run.Kernels("ncclKernel_AllReduce")}),
              truth, 0.03 * truth);
}

TEST(DeviceReplayTest, TheOptimizerWaitsForWhatIsOverlapped) {
  const auto body = [](GpuLoop& loop) {
    loop.Kernel(2000, 20, "ncclKernel_AllReduce");
    loop.StreamWait(7, 20);
    ManyKernels(loop, 10, 60, 5);
    loop.Range(RangeKind::kOptimizer, "Optimizer.step#SGD.step",
               [&] { ManyKernels(loop, 5, 60, 5); });
    loop.DeviceSync();
  };
  const Recorded run(body);
  const double aside =
      run.After({.side_stream = run.Kernels("ncclKernel_AllReduce")});
  const double overlapped =
      run.After({.overlapped = run.Kernels("ncclKernel_AllReduce")});
  EXPECT_NEAR(run.After({}) - overlapped, 600, 30);
  EXPECT_NEAR(run.After({}) - aside, 900, 60);
}

TEST(DeviceReplayTest, AnUnrecordedDependencyMakesItRefuse) {
  // The device is idle for half of the step, and no edge explains it.
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(1, 1);
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t begin = 1'700'000'000'000'000'000 + i * 10'000'000;
    builder.Add(Step{begin, begin + 10'000'000, i, thread});
    for (int64_t k = 0; k < 2; ++k) {
      builder.Add(RuntimeCall{.begin_ns = begin + k * 100'000,
                              .end_ns = begin + k * 100'000 + 5'000,
                              .correlation = 2 * i + k + 1,
                              .name = builder.Intern("cudaLaunchKernel"),
                              .thread = thread});
      Kernel kernel;
      kernel.begin_ns = begin + 10'000 + k * 7'000'000;
      kernel.end_ns = kernel.begin_ns + 2'000'000;
      kernel.correlation = 2 * i + k + 1;
      kernel.stream = 7;
      kernel.name = builder.Intern("some_kernel");
      builder.Add(kernel);
    }
    builder.Add(RuntimeCall{.begin_ns = begin + 300'000,
                            .end_ns = begin + 9'020'000,
                            .correlation = 100 + i,
                            .name = builder.Intern("cudaDeviceSynchronize"),
                            .thread = thread});
    // Everything after the wait depends on it.
    builder.Add(RuntimeCall{.begin_ns = begin + 9'500'000,
                            .end_ns = begin + 9'505'000,
                            .correlation = 200 + i,
                            .name = builder.Intern("cudaEventRecord"),
                            .thread = thread});
  }
  for (Kind kind : {Kind::kStep, Kind::kRuntimeCall, Kind::kKernel}) {
    builder.Watch(kind);
  }
  const Trace trace = builder.Build();
  const AnalysisContext measured(trace);
  EXPECT_FALSE(measured.replay.check().valid);
  EXPECT_LT(measured.replay.check().no_edit_error, -0.03);
}

}  // namespace
}  // namespace stepscope
