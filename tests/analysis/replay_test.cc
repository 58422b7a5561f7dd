// Compares the replay's prediction for an edit with a simulation of the edited
// program.
#include "replay/replay.h"

#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

#include <string>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "support/cpu_loop.h"
#include "support/cpu_text.h"
#include "support/trace_copy.h"

namespace stepscope::replay_test {
namespace {

double Ms(const AnalysisContext& measured, const Edit& edit) {
  return measured.replay.StepNs(edit) * 1e-6;
}

void ExpectNear(double predicted, double truth, double limit,
                const std::string& what) {
  EXPECT_NEAR(predicted / truth, 1, limit)
      << what << ": predicted " << predicted << " ms, simulated " << truth
      << " ms";
}

struct Case {
  int cores, threads;
  double batch_ms, op_ms;
  int ops;
};
constexpr Case kCases[] = {{2, 1, 37, 2.5, 40}, {2, 1, 40, 6, 40},
                           {2, 1, 150, 2, 40},  {2, 2, 40, 5, 40},
                           {4, 1, 20, 1, 60},   {4, 2, 60, 3, 30},
                           {4, 4, 30, 2.5, 40}, {8, 4, 100, 4, 25},
                           {8, 1, 5, 0.5, 100}, {16, 8, 200, 8, 20}};

Loop LoopOf(const Case& c) {
  return {.batch_ms = c.batch_ms,
          .ops = Ops(c.ops, c.op_ms),
          .threads = c.threads,
          .cores = c.cores};
}

TEST(ReplayTest, UnchangedGivesTheMeasuredStep) {
  for (const Case& c : kCases) {
    for (int workers : {0, 1, 3}) {
      Loop loop = LoopOf(c);
      loop.workers = workers;
      const LoopRun run = Simulate(loop);
      const AnalysisContext measured(run.trace);
      EXPECT_TRUE(measured.replay.check().valid)
          << measured.replay.check().why_not << " cores " << c.cores
          << " workers " << workers;
      ExpectNear(Ms(measured, {}), run.mean_step_ms, 0.03, "no edit");
    }
  }
}

TEST(ReplayTest, PredictsLoaderWorkersWithinATenth) {
  for (const Case& c : kCases) {
    const LoopRun run = Simulate(LoopOf(c));
    const AnalysisContext measured(run.trace);
    for (int workers : {1, 2, 4}) {
      Loop edited = LoopOf(c);
      edited.workers = workers;
      edited.warmup = 12;
      edited.steps = 8;
      ExpectNear(Ms(measured, {.workers = workers}),
                 Simulate(edited).mean_step_ms, 0.10,
                 std::to_string(c.cores) + " cores, " +
                     std::to_string(c.threads) + " threads, loader " +
                     std::to_string(c.batch_ms) + ", workers " +
                     std::to_string(workers));
    }
  }
}

TEST(ReplayTest, PredictsMoreThreadsWithinATenth) {
  for (const Case& c : kCases) {
    const LoopRun run = Simulate(LoopOf(c));
    const AnalysisContext measured(run.trace);
    for (int threads = 1; threads <= c.cores; threads *= 2) {
      Loop edited = LoopOf(c);
      edited.threads = threads;
      ExpectNear(Ms(measured, {.threads = threads}),
                 Simulate(edited).mean_step_ms, 0.10,
                 std::to_string(c.cores) + " cores, " +
                     std::to_string(c.threads) + " to " +
                     std::to_string(threads) + " threads");
    }
  }
}

TEST(ReplayTest, PredictsWorkersAndThreadsTogether) {
  for (const Case& c : kCases) {
    const LoopRun run = Simulate(LoopOf(c));
    const AnalysisContext measured(run.trace);
    for (int threads = 1; threads <= c.cores; threads *= 2) {
      Loop edited = LoopOf(c);
      edited.threads = threads;
      edited.workers = 1;
      edited.warmup = 12;
      edited.steps = 8;
      ExpectNear(Ms(measured, {.workers = 1, .threads = threads}),
                 Simulate(edited).mean_step_ms, 0.15,
                 std::to_string(c.cores) + " cores, " +
                     std::to_string(threads) + " threads and a worker");
    }
  }
}

// Framework time does not grow with the batch, so it shrinks per sample.
TEST(ReplayTest, PredictsLargerBatchesWithinATenth) {
  for (const Case& c : kCases) {
    const LoopRun run = Simulate(LoopOf(c));
    const AnalysisContext measured(run.trace);
    for (int batch : {2, 4}) {
      Loop edited = LoopOf(c);
      edited.batch_ms *= batch;
      for (LoopOp& op : edited.ops) {
        if (op.parallel) op.ms *= batch;
      }
      ExpectNear(Ms(measured, {.batch = static_cast<double>(batch)}),
                 Simulate(edited).mean_step_ms / batch, 0.10,
                 "batch x " + std::to_string(batch));
    }
  }
}

TEST(ReplayTest, SmallOpsGainMostFromALargerBatch) {
  Loop loop{.ops = Ops(100, 0.1)};
  for (LoopOp& op : loop.ops) {
    op.dispatch_us = 30;
    op.gap_us = 40;
  }
  const LoopRun run = Simulate(loop);
  const AnalysisContext measured(run.trace);
  Loop twice = loop;
  for (LoopOp& op : twice.ops) {
    if (op.parallel) op.ms *= 2;
  }
  const double truth = Simulate(twice).mean_step_ms / 2;
  ASSERT_LT(truth, 0.8 * Ms(measured, {}));
  ExpectNear(Ms(measured, {.batch = 2}), truth, 0.10, "batch x 2");
}

// Returns the step for twice the batch. The recorded step has 60 ms of ops and
// 40 ms of code in a range called `name`.
double TwiceTheBatchMs(const std::string& name) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::relu", 60'000, 1'000);
    text.Begin();
    text.Pass(39'000);
    text.EndRange("kind=user " + name);
    text.EndStep();
  }
  const Trace trace = text.Recorded();
  return Ms(AnalysisContext(trace), {.batch = 2});
}

TEST(ReplayTest, SavingTheModelTakesAsLongForAnyBatch) {
  EXPECT_NEAR(TwiceTheBatchMs("prepare"), 100, 1);
  EXPECT_NEAR(TwiceTheBatchMs("save checkpoint"), 80.5, 1);
}

TEST(ReplayTest, AWorkerOnAFreeCoreSavesAllLoading) {
  const LoopRun run = Simulate(LoopOf({2, 1, 37, 2.5, 40}));
  const AnalysisContext measured(run.trace);
  EXPECT_NEAR(Ms(measured, {}) - Ms(measured, {.workers = 1}), 37, 0.5);
}

TEST(ReplayTest, AWorkerGainsNothingIfThePoolHasAllCores) {
  const LoopRun run = Simulate(LoopOf({2, 2, 40, 5, 40}));
  const AnalysisContext measured(run.trace);
  EXPECT_LT(Ms(measured, {}) - Ms(measured, {.workers = 1}), 0.5);
}

TEST(ReplayTest, AWorkerThatNeedsLongerThanTheStepSetsThePace) {
  const LoopRun run = Simulate(LoopOf({4, 1, 150, 2, 20}));
  const AnalysisContext measured(run.trace);
  EXPECT_NEAR(Ms(measured, {.workers = 1}), 150, 2);
  EXPECT_NEAR(Ms(measured, {.workers = 2}), 75, 2);
}

TEST(ReplayTest, ZeroGradCanBeTakenOut) {
  Loop loop{.ops = Ops(20, 2)};
  for (int i = 0; i < 20; ++i) {
    loop.ops.push_back({.name = "aten::zero_", .ms = 0.4, .zero_grad = true});
  }
  Loop without{.ops = Ops(20, 2)};
  Trace trace = Simulate(loop).trace;
  TraceBuilder builder;
  AddAll(trace, builder);
  // The range shows that the zeroed tensors are gradients.
  for (const Step& step : trace.steps()) {
    builder.Add(
        Range{.begin_ns = step.begin_ns,
              .end_ns = step.end_ns,
              .name = builder.Intern("Optimizer.zero_grad#SGD.zero_grad"),
              .thread = step.thread,
              .kind = RangeKind::kOptimizer});
  }
  const Trace marked = builder.Build();
  const AnalysisContext measured(marked);
  ExpectNear(Ms(measured, {.drop_zero_grad = true}),
             Simulate(without).mean_step_ms, 0.10, "no zeroing");
}

TEST(ReplayTest, DispatchCanBeMadeCheap) {
  Loop loop{.ops = Ops(200, 0.05)};
  Loop cheap = loop;
  for (LoopOp& op : cheap.ops) op.dispatch_us = 0, op.gap_us = 2;
  const LoopRun run = Simulate(loop);
  const AnalysisContext measured(run.trace);
  ExpectNear(Ms(measured, {.dispatch_ns = 2'000}), Simulate(cheap).mean_step_ms,
             0.10, "compiled");
}

TEST(ReplayTest, IsInvalidWithoutSteps) {
  EXPECT_FALSE(Replay().check().valid);
  EXPECT_FALSE(Replay(CpuProgram()).check().valid);
}

// Steps of three 1 ms ops; the second one follows 0.2 ms of own code.
AnalysisContext ThreeOps(Trace& trace) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    text.Op("aten::mm", 1'000, 200);
    text.Op("aten::relu", 1'000);
    text.Op("aten::mm", 1'000);
    text.EndStep();
  }
  trace = text.Recorded();
  return AnalysisContext(trace);
}

// Shortens the first `us` of each step's second op to `keep_us`.
Edit CutOps(const Trace& trace, int64_t us, double keep_us) {
  Edit edit;
  for (RowId row = 1; row < trace.ops().size(); row += 3) {
    const int64_t begin = trace.ops()[row].begin_ns;
    edit.cuts.push_back({.thread = 0,
                         .span = {begin, begin + us * 1000},
                         .keep_ns = keep_us * 1000});
  }
  return edit;
}

TEST(ReplayTest, CutsShortenWhatLiesInThem) {
  Trace trace;
  const AnalysisContext measured = ThreeOps(trace);
  EXPECT_NEAR(Ms(measured, {}), 3.2, 0.001);
  EXPECT_NEAR(Ms(measured, CutOps(trace, 1'000, 0)), 2.2, 0.001);
  EXPECT_NEAR(Ms(measured, CutOps(trace, 500, 100)), 2.8, 0.001);
  // A cut never makes anything longer.
  EXPECT_NEAR(Ms(measured, CutOps(trace, 500, 600)), 3.2, 0.001);
}

TEST(ReplayTest, OfOverlappingCutsTheDeeperOneCounts) {
  Trace trace;
  const AnalysisContext measured = ThreeOps(trace);
  const Edit both = Combine(CutOps(trace, 1'000, 500), CutOps(trace, 500, 0));
  // Nothing remains of the first half, and half remains of the second.
  EXPECT_NEAR(Ms(measured, both), 2.45, 0.001);
}

TEST(ReplayTest, CombiningKeepsBothEdits) {
  const Edit both =
      Combine({.workers = 2, .drop_zero_grad = true}, {.threads = 3});
  EXPECT_EQ(both.workers, 2);
  EXPECT_EQ(both.threads, 3);
  EXPECT_TRUE(both.drop_zero_grad);
}

TEST(ReplayTest, PredictsMoreWorkersWhereOneDeliversTooSlowly) {
  // Nothing competes for cores, so calibration must not slow the ops down.
  for (double batch_ms : {150.0, 190.0, 220.0}) {
    Loop loop{.steps = 6,
              .batch_ms = batch_ms,
              .ops = Ops(40, 2.5),
              .threads = 4,
              .workers = 1,
              .cores = 16};
    const LoopRun run = Simulate(loop);
    const AnalysisContext measured(run.trace);
    ASSERT_TRUE(measured.replay.check().valid);
    Loop edited = loop;
    edited.workers = 7;
    edited.warmup = 20;
    ExpectNear(Ms(measured, {.workers = 7}), Simulate(edited).mean_step_ms,
               0.05, "7 workers for batches of " + std::to_string(batch_ms));
  }
}

}  // namespace
}  // namespace stepscope::replay_test
