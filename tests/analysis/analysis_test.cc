#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/trace_builder.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/cpu_loop.h"
#include "support/cpu_text.h"
#include "support/gpu_text.h"
#include "support/random_trace.h"
#include "support/trace_text.h"

namespace stepscope::analysis_test {
namespace {

// Returns `trace` with its rows added in another order.
Trace Shuffled(const Trace& trace, uint64_t seed) {
  TraceBuilder builder;
  std::mt19937_64 random(seed);
  builder.run() = trace.run();
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if (trace.watched(static_cast<Kind>(kind))) {
      builder.Watch(static_cast<Kind>(kind));
    }
  }
  for (const Thread& thread : trace.threads()) {
    const RowId row = builder.ThreadRow(thread.pid, thread.tid);
    builder.thread(row).torch_thread = thread.torch_thread;
  }
  const auto name = [&](NameId id) { return builder.Intern(trace.name(id)); };
  const auto order = [&](size_t count) {
    std::vector<size_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    std::ranges::shuffle(rows, random);
    return rows;
  };
  for (size_t i : order(trace.ops().size())) {
    Op op = trace.ops()[i];
    op.name = name(op.name);
    op.parent = op.forward = op.inputs = op.stack = kNone;
    builder.Add(op);
  }
  for (size_t i : order(trace.ranges().size())) {
    Range range = trace.ranges()[i];
    range.name = name(range.name);
    range.detail = name(range.detail);
    builder.Add(range);
  }
  for (size_t i : order(trace.steps().size())) builder.Add(trace.steps()[i]);
  for (size_t i : order(trace.settings().size())) {
    builder.Add(trace.settings()[i]);
  }
  for (size_t i : order(trace.host_usage().size())) {
    builder.Add(trace.host_usage()[i]);
  }
  for (Loader loader : trace.loaders()) {
    loader.name = name(loader.name);
    loader.kind = name(loader.kind);
    builder.Add(loader);
  }
  return builder.Build();
}

const Loop kLoop{.batch_ms = 40, .ops = Ops(30, 4)};

TEST(AnalysisTest, ShufflingRecordsChangesNothing) {
  const Trace trace = Simulate(kLoop).trace;
  const std::string report = ToJson(Analyze(trace));
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(ToJson(Analyze(Shuffled(trace, seed))), report);
  }
}

TEST(AnalysisTest, RenumberingThreadsChangesNothing) {
  const auto text = [](int tid) {
    return "thread 0 pid=1 tid=" + std::to_string(tid) + R"( main
      run usable_cores=4
      step 0..1000000 thread=0
      op 0..900000 thread=0 aten::mm
      settings 0 step=0 intra_op_threads=1
    )";
  };
  EXPECT_EQ(ToJson(Analyze(TraceFromText(text(7)))),
            ToJson(Analyze(TraceFromText(text(4242)))));
}

TEST(AnalysisTest, ShiftingTimeChangesNoNumber) {
  const auto text = [](int64_t t) {
    const auto at = [t](int64_t ns) { return std::to_string(t + ns); };
    return "run usable_cores=4\nstep " + at(0) + ".." + at(1000000) +
           " thread=0\nop " + at(0) + ".." + at(900000) +
           " thread=0 aten::mm\nsettings 0 step=0 intra_op_threads=1\n";
  };
  EXPECT_EQ(ToText(Analyze(TraceFromText(text(0))), {.verbose = true}),
            ToText(Analyze(TraceFromText(text(1'700'000'000'000'000'000))),
                   {.verbose = true}));
}

TEST(AnalysisTest, EveryRuleGivesExactlyOneAnswer) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    for (bool gpu : {false, true}) {
      const Report report = Analyze(RandomTrace(
          {.seed = seed, .steps = static_cast<int>(seed % 4), .gpu = gpu}));
      std::vector<std::string> ids = report.clean;
      std::set<std::string> looked;  // several causes may list a rule
      for (const CauseAnswer& answer : report.coverage) {
        looked.insert(answer.looked.begin(), answer.looked.end());
      }
      for (const std::string& id : report.clean) looked.erase(id);
      ids.insert(ids.end(), looked.begin(), looked.end());
      for (const Finding& finding : report.findings) ids.push_back(finding.id);
      for (const auto& entry : report.skipped) ids.push_back(entry.id);
      EXPECT_GE(ids.size() + report.superseded.size(), 9u) << "seed " << seed;
      for (const char* id :
           {"capture-incomplete", "sync-data-loading", "cores-idle"}) {
        EXPECT_EQ(std::ranges::count(ids, id), 1) << id << " seed " << seed;
      }
    }
  }
}

TEST(AnalysisTest, GainsNeverExceedTheStep) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    for (bool gpu : {false, true}) {
      const Report report =
          Analyze(RandomTrace({.seed = seed, .ops_per_step = 300, .gpu = gpu}));
      for (const Finding& finding : report.findings) {
        EXPECT_GE(finding.gain.low_ms, 0) << finding.id;
        EXPECT_LE(finding.gain.low_ms, finding.gain.expected_ms) << finding.id;
        EXPECT_LE(finding.gain.expected_ms, finding.gain.high_ms) << finding.id;
        EXPECT_LE(finding.gain.high_ms, report.steps.mean_ms + 1e-9)
            << finding.id;
      }
    }
  }
}

TEST(AnalysisTest, SkipsRulesAboutOpsWithoutOps) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..1000000 thread=0
    range 0..500000 thread=0 kind=loader enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
  )"));
  for (const char* id : {"launch-bound", "zero-grad-kernels",
                         "grad-in-validation", "cores-idle"}) {
    EXPECT_EQ(std::ranges::count(report.skipped, id, &SkippedRule::id), 1)
        << id;
    EXPECT_EQ(std::ranges::count(report.clean, id), 0) << id;
  }
}

TEST(AnalysisTest, TopOpsAreSortedByOwnTime) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..10000000 thread=0
    op 0..5000000 thread=0 aten::conv2d
    op 500000..5000000 thread=0 aten::mkldnn_convolution
    op 6000000..7000000 thread=0 aten::mm
  )"));
  ASSERT_EQ(report.top_ops.size(), 3u);
  EXPECT_EQ(report.top_ops[0].name, "aten::mkldnn_convolution");
  EXPECT_DOUBLE_EQ(report.top_ops[0].self_ms_per_step, 4.5);
  EXPECT_DOUBLE_EQ(report.top_ops[2].self_ms_per_step, 0.5);
  EXPECT_DOUBLE_EQ(report.top_ops[2].total_ms_per_step, 5);
}

// aten::add takes longer on the host, and aten::mm on the GPU.
TEST(AnalysisTest, TopOpsOfAGpuRunAreSortedByTheTimeOnTheGpu) {
  GpuText run;
  for (int step = 0; step < 4; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(4000, "gemm");
    run.End();
    run.Begin("op", "aten::add");
    run.Pass(500);
    run.Kernel(100, "add");
    run.End();
    run.Synchronize("cudaDeviceSynchronize");
    run.EndStep();
  }
  const Report report = run.Analyzed();
  ASSERT_EQ(report.top_ops.size(), 2u);
  EXPECT_EQ(report.top_ops[0].name, "aten::mm");
  EXPECT_DOUBLE_EQ(report.top_ops[0].gpu_self_ms_per_step, 4);
  EXPECT_EQ(report.top_ops[1].name, "aten::add");
  EXPECT_DOUBLE_EQ(report.top_ops[1].gpu_self_ms_per_step, 0.1);
  EXPECT_GT(report.top_ops[1].self_ms_per_step,
            report.top_ops[0].self_ms_per_step);
  const std::string text = ToText(report, {});
  EXPECT_NE(text.find("ops by GPU time, per step"), std::string::npos) << text;
}

// A loader thread stacks batches, and the training thread stacks as well. The
// backward pass has its own thread but belongs to training.
TEST(AnalysisTest, TopOpsOfALoadersThreadHaveTheirOwnRows) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..10000000 thread=0
    op 0..1000000 thread=0 aten::stack
    op 0..4000000 thread=1 aten::stack
    op 5000000..7000000 thread=2 kind=backward MmBackward0
    op 5000000..7000000 thread=2 aten::mm
  )"));
  ASSERT_EQ(report.top_ops.size(), 4u);
  EXPECT_EQ(report.top_ops[0].name, "aten::stack");
  EXPECT_TRUE(report.top_ops[0].other_thread);
  EXPECT_DOUBLE_EQ(report.top_ops[0].self_ms_per_step, 4);
  EXPECT_EQ(report.top_ops[1].name, "aten::mm");
  EXPECT_FALSE(report.top_ops[1].other_thread);
  EXPECT_EQ(report.top_ops[2].name, "aten::stack");
  EXPECT_FALSE(report.top_ops[2].other_thread);
  EXPECT_DOUBLE_EQ(report.top_ops[2].calls_per_step, 1);
  const std::string text = ToText(report, {});
  EXPECT_NE(text.find("aten::stack (other thread)"), std::string::npos) << text;
}

// Batches may be empty, and rules divide by numbers of elements.
TEST(AnalysisTest, TensorsMayHaveNoElements) {
  const char* const kOps[] = {
      "inputs=(float[9,4],long int[8,0]) aten::embedding",
      "inputs=(float[0,4],Scalar=\"0\") aten::diag_embed",
      "inputs=(float[0,4,4]) aten::linalg_cholesky",
      "inputs=(float[0,8],Scalar=\"0\",long int[0],float[0,8]) "
      "aten::index_copy",
      "inputs=(double[0],Scalar=\"4\",Scalar=\"True\") aten::multinomial",
      "inputs=(float[0,0],float[0,4]) aten::mm",
      "inputs=(float[8,0,4,4],float[3,0,2,2]) aten::conv2d",
      "inputs=(float[8,0],float[5,0]) aten::linear",
      "inputs=(float[0,5]) aten::argsort",
      "inputs=(long int[0,5]) aten::argsort",
      "inputs=(float[2,4,0,16],float[2,4,0,16],float[2,4,0,16],float[2,1,1,0])"
      " aten::scaled_dot_product_attention",
      "inputs=(long int[100,7],Scalar=\"0\",Scalar=\"3\") aten::select",
      "inputs=(long int[100,7],long int[3]) aten::index",
      "inputs=(unsigned char[0],unsigned char[0]) aten::copy_",
      "inputs=(float[0,1,64],float[1,0,64]) aten::mul",
      "inputs=(float[0],ScalarList=\"[0, -1]\") aten::expand"};
  CpuText text;
  int sequence = 0;
  for (int step = 0; step < 5; ++step) {
    for (int pass = 0; pass < 2; ++pass) {
      for (const char* op : kOps) {
        text.Op("sequence=" + std::to_string(sequence++) + " " + op, 100);
      }
      text.Nested("inputs=(float[0,2,30]) aten::ctc_loss", 100,
                  "inputs=(float[0,2,30],long int[2,3],ScalarList=\"[0, 0]\","
                  "ScalarList=\"[3, 3]\") aten::_ctc_loss",
                  90);
    }
    for (int number = sequence; number-- > sequence - 32;) {
      text.Nested(
          "kind=backward sequence=" + std::to_string(number) + " XBackward0",
          100, "inputs=(float[0,4],float[4,0]) aten::mm", 90);
    }
    text.EndStep();
  }
  EXPECT_EQ(text.Analyzed().steps.count, 5);
}

}  // namespace
}  // namespace stepscope::analysis_test
