// Tests the replay of GPU runs on loops with known times.
#include "replay/gpu/device_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "context/analysis_context.h"
#include "support/gpu_loop.h"
#include "support/trace_text.h"

namespace stepscope::device_replay_test {
namespace {

constexpr int kSteps = 6;

// Returns the program's time per step in us.
double Truth(const std::string& step, int steps = kSteps,
             const std::string& machine = "") {
  return 1000 * RunGpuLoop(step, {.steps = steps, .record = false}, machine)
                    .mean_step_ms;
}

struct Recorded {
  explicit Recorded(const std::string& step, int steps = kSteps,
                    const std::string& machine = "")
      : trace(std::move(RunGpuLoop(step, {.steps = steps}, machine).ranks[0])),
        measured(trace) {}
  const ReplayCheck& check() const { return measured.replay.check(); }
  double After(const Edit& edit,
               const ReplayParameters& parameters = {}) const {
    return measured.replay.StepNs(edit, parameters) / 1000;
  }
  // Returns the runtime calls of this name.
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

TEST(DeviceReplayTest, IsValidForAHostBoundLoop) {
  const Recorded run(ManyKernels(50, 4, 20));
  EXPECT_TRUE(run.check().valid) << run.check().why_not;
  EXPECT_NEAR(run.check().no_edit_error, 0, 1e-3);
  EXPECT_NEAR(run.check().limit_error, 0, 0.02);
}

// The host runs ahead, streams wait for each other, and each step reads a value
// back.
std::string Mixed(double kernel_us) {
  const std::string kernels = ManyKernels(20, kernel_us, 6);
  return kernels + "record a; wait a stream=20\nkernel other_kernel " +
         std::to_string(kernel_us * 3) +
         "us stream=20\nrecord b stream=20; wait b\n" + kernels + kReadBack +
         "host 50us\n";
}

TEST(DeviceReplayTest, ReplaysARepresentativePartOfManySteps) {
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
  std::ranges::sort(edit.scales, {}, &ActivityScale::activity);
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

// Nothing waits for the device, so it lags several steps behind the host. The
// replayed part starts in the middle of this lag.
TEST(DeviceReplayTest, APartOfALoopWithABacklogIsRepresentative) {
  constexpr int kMany = 300;
  const Recorded run(ManyKernels(20, 60, 5), kMany);
  EXPECT_EQ(run.measured.replay.device()->steady.size(), 128u);
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  Edit edit;
  for (const ActivityRef& ref : run.Kernels("some_kernel")) {
    edit.scales.push_back({.activity = ref, .factor = 0.3});
  }
  const double truth = Truth(ManyKernels(20, 18, 5), kMany);
  EXPECT_NEAR(run.After(edit), truth, 0.05 * truth);
}

TEST(DeviceReplayTest, IsValidForADeviceBoundLoop) {
  const Recorded run(ManyKernels(50, 60, 5) + kReadBack);
  EXPECT_TRUE(run.check().valid) << run.check().why_not;
  EXPECT_NEAR(run.check().no_edit_error, 0, 1e-3);
}

TEST(DeviceReplayTest, FasterKernelsGainNothingIfTheHostIsLate) {
  const Recorded run(ManyKernels(50, 4, 20));
  Edit edit;
  for (const ActivityRef& work : run.Kernels("some_kernel")) {
    edit.scales.push_back({work, 0.5});
  }
  EXPECT_NEAR(run.After(edit), run.After({}), 0.02 * run.After({}));
}

TEST(DeviceReplayTest, FasterKernelsGainTheirTimeIfTheDeviceIsBusy) {
  const auto body = [](double us) {
    return ManyKernels(50, us, 5) + kReadBack;
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

// The device pauses for 2 us before each kernel.
TEST(DeviceReplayTest, TheGapBeforeAKernelGoesWithIt) {
  const auto body = [](int kernels) {
    return "kernel other_kernel 500us\n" + ManyKernels(kernels, 20, 1) +
           kReadBack;
  };
  const std::string machine = "gpu A100 between=2us\n";
  const Recorded run(body(50), kSteps, machine);
  Edit edit;
  for (const ActivityRef& work : run.Kernels("some_kernel")) {
    edit.scales.push_back({work, 0});
  }
  const double truth = Truth(body(0), kSteps, machine);
  EXPECT_NEAR(run.After(edit), truth, 0.1 * truth);
}

// In such a loop, only launches wait: for room in the queue.
TEST(DeviceReplayTest, FasterKernelsGainTheirTimeIfTheQueueIsFull) {
  const auto body = [](double us) { return ManyKernels(700, us, 5); };
  const Recorded run(body(60));
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  Edit edit;
  for (const ActivityRef& work : run.Kernels("some_kernel")) {
    edit.scales.push_back({work, 0.5});
  }
  EXPECT_NEAR(run.After(edit), Truth(body(30)), 0.03 * Truth(body(30)));
}

// Launches that waited for room still need their own time without the wait.
TEST(DeviceReplayTest, LaunchesLimitTheStepOnceTheDeviceIsFaster) {
  const auto body = [](double us) { return ManyKernels(700, us, 5); };
  // The first launches find an empty queue and show the time of a launch.
  const Recorded run(body(60), kSteps, "steps 6 warmup=0");
  EXPECT_NEAR(run.check().limit_error, 0, 0.02);
  Edit edit;
  for (const ActivityRef& work : run.Kernels("some_kernel")) {
    edit.scales.push_back({work, 0.05});
  }
  EXPECT_NEAR(run.After(edit), Truth(body(3)), 0.05 * Truth(body(3)));
}

// Behind short kernels, a launch waits for only a few us, each time.
TEST(DeviceReplayTest, ShortWaitsForRoomInTheQueueAreNoWorkOfTheHost) {
  const auto body = [](double us) { return ManyKernels(700, us, 2); };
  constexpr int kManySteps = 12;
  for (const double us : {10.0, 13.0, 18.0}) {
    const Recorded run(body(us), kManySteps, "steps 12 warmup=0");
    EXPECT_NEAR(run.check().limit_error, 0, 0.02) << us;
    Edit edit;
    for (const ActivityRef& work : run.Kernels("some_kernel")) {
      edit.scales.push_back({work, 0.05});
    }
    EXPECT_NEAR(run.After(edit), Truth(body(us / 20), kManySteps),
                0.1 * Truth(body(us / 20), kManySteps))
        << us;
  }
}

TEST(DeviceReplayTest, AReadInTheMiddleCostsTheHostItsHeadStart) {
  const auto body = [](bool reads) {
    return ManyKernels(20, 50, 10) + (reads ? kReadBack : "") +
           ManyKernels(40, 8, 20);
  };
  const Recorded run(body(true));
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  const double truth = Truth(body(false));
  ASSERT_LT(truth, 0.85 * run.After({}));
  EXPECT_NEAR(run.After({.no_wait = run.Calls("cudaMemcpyAsync")}), truth,
              0.05 * truth);
}

TEST(DeviceReplayTest, AReadBehindABusyDeviceCostsNothing) {
  const Recorded run(ManyKernels(50, 60, 5) + kReadBack);
  const double after = run.After({.no_wait = run.Calls("cudaMemcpyAsync")});
  EXPECT_GT(after, 0.95 * run.After({}));
}

TEST(DeviceReplayTest, BatchesMadeByWorkersAreTakenAtOnce) {
  const std::string step = "load\n" + ManyKernels(50, 50, 60) + kReadBack;
  const Recorded run(step, kSteps, "loader cpu=2ms");
  const double truth = Truth(step, kSteps, "loader cpu=2ms workers=2");
  // Busy workers slow the training thread down a little.
  const double after = run.After({.workers = 2});
  EXPECT_GE(after, 0.99 * truth);
  EXPECT_LE(after, 1.15 * truth);
}

TEST(DeviceReplayTest, TooFewWorkersLimitTheStep) {
  const Recorded run("load\n" + ManyKernels(20, 50, 60), kSteps,
                     "loader cpu=9ms");
  EXPECT_NEAR(run.After({.workers = 2}), 4500, 45);
  EXPECT_LT(run.After({.workers = 8}), 2000);
}

TEST(DeviceReplayTest, ACutKeepsItsKeepNs) {
  const auto body = [](double us) {
    return ManyKernels(20, 4, 20) + "range user logging { host " +
           std::to_string(us) + "us }\n" + ManyKernels(20, 4, 20);
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
  const Recorded run("host 300us\n" +  // the program's own code remains
                     ManyKernels(50, 4, 40));
  // 2 us remain for an op and its launch together (the launch costs 4 us here),
  // so 44 us become 2 us.
  const double truth = 300 + 50 * 2;
  EXPECT_NEAR(run.After({.dispatch_ns = 2000}), truth, 0.1 * truth);
}

// Runs on its own stream, where it slows no other kernel.
std::string AllReduce(int us) {
  return "kernel ncclKernel_AllReduce " + std::to_string(us) +
         "us stream=20 fill=0; record reduced stream=20\n";
}

TEST(DeviceReplayTest, AStreamWaitsForAnotherOnlyUntilTheEdgeIsGone) {
  const auto body = [](bool waits) {
    return AllReduce(500) + (waits ? "wait reduced\n" : "") +
           ManyKernels(10, 60, 5) + "sync device\n";
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
  const Recorded run(AllReduce(2000) + "wait reduced\n" +
                     ManyKernels(10, 60, 5) +
                     "range optimizer Optimizer.step#SGD.step {\n" +
                     ManyKernels(5, 60, 5) + "}\nsync device\n");
  const double aside =
      run.After({.side_stream = run.Kernels("ncclKernel_AllReduce")});
  const double overlapped =
      run.After({.overlapped = run.Kernels("ncclKernel_AllReduce")});
  EXPECT_NEAR(run.After({}) - overlapped, 600, 30);
  EXPECT_NEAR(run.After({}) - aside, 900, 60);
}

// A loop after two products reduces the result of the second one first. Issued
// early, the first result is reduced while the second product runs.
TEST(DeviceReplayTest, WhatStartsEarlyRunsInTheOrderInWhichItCan) {
  const auto reduce = [](const std::string& name) {
    return "record made\nwait made stream=20\nkernel ncclKernel_AllReduce_" +
           name +
           " 500us stream=20 fill=0; record reduced stream=20\nwait reduced\n";
  };
  const Recorded run(
      "op aten::mm 200us { kernel first 600us }\n"
      "op aten::mm 200us { kernel second 600us }\n" +
      reduce("second") + reduce("first") +
      "op aten::add 5us { kernel update 100us }\nsync device\n");
  ASSERT_TRUE(run.check().valid) << run.check().why_not;
  Edit edit;
  for (const std::string name : {"second", "first"}) {
    const std::vector<ActivityRef> made = run.Kernels(name);
    const std::vector<ActivityRef> reduced =
        run.Kernels("ncclKernel_AllReduce_" + name);
    ASSERT_EQ(made.size(), reduced.size());
    for (size_t i = 0; i < made.size(); ++i) {
      edit.early.push_back({reduced[i], made[i]});
    }
  }
  EXPECT_NEAR(run.After({}) - run.After(edit), 500, 30);
  // A lone step is replayed several times.
  EXPECT_NEAR(run.After(Combine(edit, edit)), run.After(edit), 1e-6);
}

TEST(DeviceReplayTest, AnUnrecordedDependencyMakesItRefuse) {
  // The device is idle for half of the step, and no edge explains why.
  std::string rows;
  for (int64_t i = 0; i < 4; ++i) {
    const auto row = [&](const std::string& kind, int64_t begin_us,
                         int64_t end_us, const std::string& rest) {
      rows += kind + " " + std::to_string(i * 10'000 + begin_us) + "000.." +
              std::to_string(i * 10'000 + end_us) + "000 " + rest + "\n";
    };
    row("step", 0, 10'000, "thread=0 number=" + std::to_string(i));
    for (int64_t k = 0; k < 2; ++k) {
      const std::string launch =
          " correlation=" + std::to_string(2 * i + k + 1) + " ";
      row("runtime_call", k * 100, k * 100 + 5,
          "thread=0" + launch + "cudaLaunchKernel");
      row("kernel", 10 + k * 7'000, 2'010 + k * 7'000,
          "stream=7" + launch + "some_kernel");
    }
    row("runtime_call", 300, 9'020, "thread=0 cudaDeviceSynchronize");
    // Everything after the wait depends on this event.
    row("runtime_call", 9'500, 9'505, "thread=0 cudaEventRecord");
  }
  const Trace trace = TraceFromText(rows);
  const AnalysisContext measured(trace);
  EXPECT_FALSE(measured.replay.check().valid);
  EXPECT_LT(measured.replay.check().no_edit_error, -0.03);
}

}  // namespace
}  // namespace stepscope::device_replay_test
