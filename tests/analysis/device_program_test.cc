// Checks which launches a recording shows, and which it misses.
#include "replay/gpu/device_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "engine/sizing.h"
#include "support/gpu_loop.h"
#include "support/trace_text.h"

namespace stepscope::device_program_test {
namespace {

constexpr int kSteps = 4;
constexpr int64_t kStepUs = 10'000;

// Equal steps of 10 ms. Times of rows are in us from the start of the step.
struct Rows {
  // Adds a row to each step. In `rest`, {n} becomes n + 100 * the step's
  // number.
  void Add(const std::string& kind, int64_t begin_us, int64_t end_us,
           const std::string& rest) {
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto at = [&](int64_t us) {
        return std::to_string(step * kStepUs + us) + "000";
      };
      text += kind + " " + at(begin_us) + ".." + at(end_us) + " ";
      for (size_t i = 0; i < rest.size(); ++i) {
        if (rest[i] != '{') {
          text += rest[i];
          continue;
        }
        const size_t close = rest.find('}', i);
        text += std::to_string(std::stoll(rest.substr(i + 1, close - i - 1)) +
                               100 * step);
        i = close;
      }
      text += "\n";
    }
  }
  // Adds a launch of 5 us at `launched_us` and its kernel.
  void AddKernel(int64_t launched_us, int64_t begin_us, int64_t end_us,
                 int number, int stream, const std::string& name) {
    const std::string correlation =
        "correlation={" + std::to_string(number) + "} ";
    Add("runtime_call", launched_us, launched_us + 5,
        "thread=0 " + correlation + "cudaLaunchKernel");
    Add("kernel", begin_us, end_us,
        "stream=" + std::to_string(stream) + " " + correlation + name);
  }
  Trace Make() {
    Add("step", 0, kStepUs, "thread=0 number={0}");
    return TraceFromText(text);
  }

  std::string text;
};

// Returns the activity of this name in the second step.
const DeviceNode& Named(const AnalysisContext& m, std::string_view name) {
  for (const DeviceNode& node : m.replay.device()->activities) {
    if (node.step == 1 && node.ref.table == ActivityTable::kKernel &&
        m.trace.name(m.trace.kernels()[node.ref.row].name) == name) {
      return node;
    }
  }
  ADD_FAILURE() << name << " is not in the program";
  return m.replay.device()->activities[0];
}

std::vector<std::string> WaitsOf(const AnalysisContext& m,
                                 std::string_view name) {
  const DeviceProgram& program = *m.replay.device();
  const DeviceNode& node = Named(m, name);
  std::vector<std::string> names;
  for (uint32_t i = 0; i < node.wait_count; ++i) {
    const ActivityRef ref =
        program.activities[program.waits[node.first_wait + i]].ref;
    names.emplace_back(m.trace.name(m.trace.kernels()[ref.row].name));
  }
  return names;
}

Edit Halved(const Trace& trace, std::string_view name) {
  Edit edit;
  for (RowId row = 0; row < trace.kernels().size(); ++row) {
    if (trace.name(trace.kernels()[row].name) == name) {
      edit.scales.push_back(
          {.activity = {ActivityTable::kKernel, row}, .factor = 0.5});
    }
  }
  return edit;
}

// Nothing waits for the device, so it lags behind the host. The first recorded
// steps run work that was launched before the recording.
TEST(DeviceProgramTest, ABacklogHasNoMissingLaunches) {
  const auto loop = [](double us, bool record) {
    return RunGpuLoop(ManyKernels(20, us, 5), {.steps = 8, .record = record});
  };
  const ProgramRun run = loop(60, true);
  const Trace& trace = run.ranks[0];
  ASSERT_EQ(trace.kernels()[0].call, kNone);
  const AnalysisContext m(trace);
  const DeviceProgram& program = *m.replay.device();
  EXPECT_EQ(program.unmatched_frac, 0);
  EXPECT_EQ(program.activities[0].host, 0u);
  EXPECT_EQ(program.activities[0].step, -1);
  ASSERT_TRUE(m.replay.check().valid) << m.replay.check().why_not;
  const double truth_ns = 1e6 * loop(30, false).mean_step_ms;
  EXPECT_NEAR(m.replay.StepNs(Halved(trace, "some_kernel")), truth_ns,
              0.03 * truth_ns);
}

// The same kernels, but their correlation numbers belong to calls during the
// recording.
TEST(DeviceProgramTest, ALostLaunchIsNoBacklog) {
  Rows rows;
  rows.AddKernel(100, 200, 300, 1, 7, "first");
  rows.AddKernel(110, 300, 400, 3, 7, "second");
  std::string lost = "kernel 10000..100000 stream=7 correlation=2 lost\n";
  rows.text += lost;
  rows.Add("runtime_call", 120, 9'000, "thread=0 cudaDeviceSynchronize");
  const Trace trace = rows.Make();
  const AnalysisContext m(trace);
  EXPECT_GT(m.replay.device()->unmatched_frac, 0);
}

// A host that launches ahead and waits at the end of the step also waits in the
// gaps between the kernels.
TEST(DeviceProgramTest, GapsBetweenKernelsAreNoHostTime) {
  const ProgramRun run = RunGpuLoop(ManyKernels(400, 10, 1) + "sync device\n",
                                    {.steps = 6}, "gpu A100 between=900ns\n");
  const AnalysisContext m(run.ranks[0]);
  const DeviceProgram& program = *m.replay.device();
  EXPECT_LT(program.host_only_ns, 0.8 * program.measured_ns);
  EXPECT_TRUE(m.replay.check().valid) << m.replay.check().why_not;
  EXPECT_NEAR(m.replay.check().limit_error, 0, 0.05);
}

// A call of 4.8 ms that ends when the device's only kernel ends.
ReplayCheck CheckWithLongCall(const std::string& name) {
  Rows rows;
  rows.AddKernel(100, 110, 5'000, 1, 7, "some_kernel");
  rows.Add("runtime_call", 200, 5'003, "thread=0 " + name);
  const Trace trace = rows.Make();
  return AnalysisContext(trace).replay.check();
}

// Without an edit, the replayed steps are exact whether or not the replay knows
// that the call waits. If the device gets faster, they are exact only if it
// knows.
TEST(DeviceProgramTest, AWaitThatReplayDoesNotKnowFailsTheSecondCheck) {
  EXPECT_TRUE(CheckWithLongCall("cudaStreamSynchronize").valid);
  // With few launches in flight, the replay takes a long launch for host time.
  for (const char* name : {"cudaModuleUnload", "cudaLaunchKernel"}) {
    const ReplayCheck check = CheckWithLongCall(name);
    EXPECT_NEAR(check.no_edit_error, 0, 1e-3);
    EXPECT_GT(check.limit_error, 0.5);
    EXPECT_FALSE(check.valid);
    EXPECT_NE(check.why_not.find("host's own time"), std::string::npos);
  }
}

// Allocations take long by themselves.
TEST(DeviceProgramTest, AnAllocationBesideABusyDeviceIsHostTime) {
  const ReplayCheck check = CheckWithLongCall("cudaMalloc");
  EXPECT_TRUE(check.valid) << check.why_not;
  EXPECT_NEAR(check.limit_error, 0, 0.01);
}

// A hole in a graph keeps its length when the graph's kernels get faster.
TEST(DeviceProgramTest, HolesInAGraphAreItsOwn) {
  Rows rows;
  rows.Add("runtime_call", 100, 120,
           "thread=0 correlation={1} cudaGraphLaunch");
  rows.Add("kernel", 130, 2'130, "stream=7 correlation={1} some_kernel");
  rows.Add("kernel", 5'130, 7'130, "stream=7 correlation={1} some_kernel");
  rows.Add("runtime_call", 200, 7'140, "thread=0 cudaDeviceSynchronize");
  const Trace trace = rows.Make();
  const AnalysisContext m(trace);
  ASSERT_TRUE(m.replay.check().valid) << m.replay.check().why_not;
  EXPECT_NEAR(m.replay.check().no_edit_error, 0, 1e-3);
  EXPECT_NEAR(
      m.replay.StepNs({}) - m.replay.StepNs(Halved(trace, "some_kernel")), 2e6,
      1e4);
}

TEST(DeviceProgramTest, KernelsOfAGraphKeepTheirOrder) {
  Rows rows;
  rows.Add("runtime_call", 100, 120,
           "thread=0 correlation={1} cudaGraphLaunch");
  rows.Add("kernel", 130, 2'130, "stream=7 correlation={1} before");
  rows.Add("kernel", 2'132, 6'132, "stream=20 correlation={1} after");
  rows.Add("runtime_call", 200, 6'140, "thread=0 cudaDeviceSynchronize");
  const Trace trace = rows.Make();
  const AnalysisContext m(trace);
  EXPECT_EQ(WaitsOf(m, "after"), std::vector<std::string>{"before"});
  ASSERT_TRUE(m.replay.check().valid) << m.replay.check().why_not;
  EXPECT_NEAR(m.replay.StepNs({}) - m.replay.StepNs(Halved(trace, "before")),
              1e6, 1e4);
}

// The driver's queue holds launches. A graph of many kernels is a single
// launch, so it does not block the host's next launch.
TEST(DeviceProgramTest, AGraphIsOneLaunch) {
  std::string graph = "graph {\n";
  for (int i = 0; i < 1200; ++i) graph += "kernel some_kernel 2us\n";
  graph += "}\n";
  const ProgramRun run =
      RunGpuLoop(graph + graph + "host 100us\nsync device\n", {.steps = 4});
  const AnalysisContext m(run.ranks[0]);
  EXPECT_LE(m.replay.device()->deepest_queue, 2u);
  EXPECT_TRUE(m.replay.check().valid) << m.replay.check().why_not;
}

TEST(DeviceProgramTest, ASingleStepIsReplayedWithAWiderRange) {
  const auto loop = [](double us, int steps, bool record) {
    return RunGpuLoop(ManyKernels(50, us, 5) + "sync device\n",
                      {.steps = steps, .record = record});
  };
  const ProgramRun one = loop(60, 1, true), six = loop(60, 6, true);
  const AnalysisContext m(one.ranks[0]), several(six.ranks[0]);
  ASSERT_TRUE(m.replay.check().valid) << m.replay.check().why_not;
  const Edit halved = Halved(one.ranks[0], "some_kernel");
  const double truth_ns = 1e6 * loop(30, 1, false).mean_step_ms;
  EXPECT_NEAR(m.replay.StepNs(halved), truth_ns, 0.02 * truth_ns);
  const Gain gain = PredictGain(m, halved);
  const Gain sure = PredictGain(several, Halved(six.ranks[0], "some_kernel"));
  // The range is a fifth of the logarithm of the step, as outcomes define it.
  const double step_ms = m.replay.StepNs({}) * 1e-6;
  EXPECT_NEAR(
      std::log(1 - gain.low_ms / step_ms) / std::log(1 - sure.low_ms / step_ms),
      0.8, 0.02);
  EXPECT_LT(gain.high_ms, step_ms);
}

// A host that no longer waits for the device gains time by starting the next
// step earlier.
TEST(DeviceProgramTest, ASingleStepIsFollowedByOthersLikeIt) {
  const auto loop = [](bool reads, int steps, bool record) {
    return RunGpuLoop(
        "host 2000us\n" + ManyKernels(20, 100, 5) + (reads ? kReadBack : ""),
        {.steps = steps, .record = record});
  };
  const ProgramRun run = loop(true, 1, true);
  const Trace& trace = run.ranks[0];
  const AnalysisContext m(trace);
  ASSERT_TRUE(m.replay.check().valid) << m.replay.check().why_not;
  Edit edit;
  for (RowId row = 0; row < trace.runtime_calls().size(); ++row) {
    if (trace.name(trace.runtime_calls()[row].name) == "cudaMemcpyAsync") {
      edit.no_wait.push_back(row);
    }
  }
  const double truth_ns = 1e6 * loop(false, 6, false).mean_step_ms;
  ASSERT_LT(truth_ns, 0.7 * m.replay.StepNs({}));
  EXPECT_NEAR(m.replay.StepNs(edit), truth_ns, 0.05 * truth_ns);
}

TEST(DeviceProgramTest, ASingleStepThatWarmsUpIsRefused) {
  const auto check = [](int allocating_us) {
    const ProgramRun run =
        RunGpuLoop(ManyKernels(50, 60, 5) + "call cudaMalloc " +
                       std::to_string(allocating_us) + "us\nsync device\n",
                   {.steps = 1});
    return AnalysisContext(run.ranks[0]).replay.check();
  };
  EXPECT_FALSE(check(5'000).valid);
  EXPECT_NE(check(5'000).why_not.find("one-off work"), std::string::npos);
  EXPECT_TRUE(check(100).valid);
}

// The kernel `event` ends when the event is recorded; `last` ends just before
// `waiting` starts.
Rows WithEvent() {
  Rows rows;
  rows.AddKernel(0, 10, 2'010, 1, 7, "event");
  rows.AddKernel(10, 20, 2'012, 2, 13, "last");
  rows.Add("runtime_call", 20, 25, "thread=0 correlation={3} cudaEventRecord");
  rows.Add("runtime_call", 30, 35,
           "thread=0 correlation={4} cudaStreamWaitEvent");
  rows.AddKernel(40, 2'015, 4'015, 5, 20, "waiting");
  return rows;
}

TEST(DeviceProgramTest, AStreamWaitsForTheEventThatWasRecorded) {
  Rows rows = WithEvent();
  rows.Add("runtime_call", 50, 4'020, "thread=0 cudaDeviceSynchronize");
  Rows with_rows = rows;
  with_rows.Add("sync", 30, 31,
                "correlation={4} stream=20 wait_on_stream=7 "
                "wait_on_record_correlation={3} Stream Wait Event");
  const Trace silent = rows.Make(), telling = with_rows.Make();
  const AnalysisContext guess(silent), fact(telling);
  EXPECT_EQ(WaitsOf(guess, "waiting"), std::vector<std::string>{"last"});
  EXPECT_EQ(WaitsOf(fact, "waiting"), std::vector<std::string>{"event"});
  EXPECT_TRUE(WaitsOf(fact, "last").empty());
}

TEST(DeviceProgramTest, TheHostWaitsForTheEventThatWasRecorded) {
  Rows rows = WithEvent();
  rows.Add("runtime_call", 50, 2'013,
           "thread=0 correlation={6} cudaEventSynchronize");
  Rows with_rows = rows;
  with_rows.Add("sync", 50, 2'013,
                "correlation={6} stream=-1 wait_on_stream=7 "
                "wait_on_record_correlation={3} Event Sync");
  const auto target = [](const Trace& trace) {
    const AnalysisContext m(trace);
    const DeviceProgram& program = *m.replay.device();
    for (const HostNode& node : program.hosts) {
      if (node.wait != NodeWait::kActivity) continue;
      const ActivityRef ref = program.activities[node.target].ref;
      return std::string(trace.name(trace.kernels()[ref.row].name));
    }
    return std::string();
  };
  EXPECT_EQ(target(rows.Make()), "last");
  EXPECT_EQ(target(with_rows.Make()), "event");
}

}  // namespace
}  // namespace stepscope::device_program_test
