#include <gtest/gtest.h>
#include <stepscope/compare.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/rules/rule_testing.h"
#include "support/cpu_loop.h"
#include "support/cpu_text.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"

namespace stepscope::compare_test {
namespace {

// Returns the text without line breaks.
std::string Unwrapped(const Comparison& comparison) {
  std::string text;
  for (char c : ToText(comparison)) {
    if (c == '\n') c = ' ';
    if (c != ' ' || !text.ends_with(' ')) text += c;
  }
  return text;
}

Loop Loading() { return {.batch_ms = 37, .ops = Ops(40, 2.5), .cores = 8}; }

TEST(CompareTest, SetsPredictedBesideMeasured) {
  Loop after = Loading();
  after.workers = 1;
  const Comparison c =
      Compare(Simulate(Loading()).trace, Simulate(after).trace);
  EXPECT_EQ(c.why_not, "");
  EXPECT_EQ(c.resolved_findings,
            (std::vector<std::string>{"sync-data-loading"}));
  EXPECT_EQ(c.predicted_kind, GainKind::kPredicted);
  EXPECT_NEAR(c.measured.expected_ms, 37, 1);
  EXPECT_NEAR(c.predicted.expected_ms, c.measured.expected_ms, 2);
  EXPECT_TRUE(c.significant);
  ASSERT_FALSE(c.causes.empty());
  EXPECT_EQ(c.causes[0].name, "data");
  EXPECT_NEAR(c.causes[0].before_ms, 37, 0.5);
  const std::string text = Unwrapped(c);
  EXPECT_NE(text.find("measured 3"), std::string::npos) << text;
  EXPECT_NE(text.find(" ms faster per step (95 % interval "), std::string::npos)
      << text;
  EXPECT_NE(text.find("The measured interval overlaps the predicted range"),
            std::string::npos)
      << text;
}

// Every fifth step of one run has a pause, or updates for longer.
TEST(CompareTest, CountsSlowStepsThatRecur) {
  const auto run = [](int64_t pause_us, int64_t update_us) {
    CpuText text;
    for (int i = 0; i < 20; ++i) {
      text.Op("aten::mm", 8'000);
      if (i % 5 == 4) {
        text.Pass(pause_us);
        text.Begin();
        text.Op("aten::add_", update_us);
        text.EndRange("kind=optimizer Optimizer.step#SGD.step");
      }
      text.EndStep();
    }
    return text.Recorded();
  };
  const Comparison pauses = Compare(run(40'000, 100), run(0, 100));
  EXPECT_NEAR(pauses.measured.expected_ms, 8, 0.01);
  EXPECT_TRUE(pauses.significant);
  EXPECT_TRUE(pauses.slow_steps_count);
  const Comparison updates = Compare(run(0, 5'000), run(0, 3'000));
  EXPECT_NEAR(updates.measured.expected_ms, 0.4, 0.01);
  EXPECT_NEAR(updates.before.mean_ms, 9, 0.01);
  EXPECT_TRUE(updates.significant);
  EXPECT_FALSE(Compare(Simulate(Loading()).trace, Simulate(Loading()).trace)
                   .slow_steps_count);
}

// Without its workers a loop waits for data, which hides other findings. They
// are not gone, and replay does not know how long making the batches takes.
TEST(CompareTest, WhatAnotherCauseHidesIsNotResolved) {
  const auto loop = [](double wait_us) {
    GpuText run;
    for (int step = 0; step < 6; ++step) {
      if (wait_us > 0) {
        run.Range(wait_us, "enumerate(DataLoader)#_Iter.__next__",
                  "kind=loader");
      }
      for (int i = 0; i < 200; ++i) {
        run.Begin("op", "aten::mul");
        run.Pass(25);
        run.Kernel(5, "k");
        run.End();
      }
      run.Synchronize("cudaDeviceSynchronize");
      run.EndStep();
    }
    return run.Build();
  };
  const Trace before = loop(0), after = loop(60'000);
  ASSERT_TRUE(Promises(Analyze(before), "launch-bound"));
  const Comparison c = Compare(before, after);
  EXPECT_LT(c.measured.expected_ms, -50);
  EXPECT_EQ(std::ranges::count(c.resolved_findings, "launch-bound"), 0);
  EXPECT_EQ(std::ranges::count(c.reduced_findings, "launch-bound"), 0);
  EXPECT_EQ(std::ranges::count(c.remaining_findings, "launch-bound"), 1);
}

TEST(CompareTest, TheSameTraceTwiceIsNoDifference) {
  const Comparison c =
      Compare(Simulate(Loading()).trace, Simulate(Loading()).trace);
  EXPECT_DOUBLE_EQ(c.measured.expected_ms, 0);
  EXPECT_FALSE(c.significant);
  EXPECT_TRUE(c.resolved_findings.empty());
  EXPECT_NE(Unwrapped(c).find("no significant difference"), std::string::npos);
  EXPECT_NE(Unwrapped(c).find("remaining findings: "), std::string::npos);
}

TEST(CompareTest, CountsLargerBatchesPerSample) {
  const auto with_batch = [](int size, int64_t step_ns) {
    std::string text =
        "loader kind=in-process workers=0 batch_size=" + std::to_string(size) +
        " train\n";
    for (int i = 0; i < 5; ++i) {
      text += "step " + std::to_string(i * step_ns) + ".." +
              std::to_string((i + 1) * step_ns) +
              " thread=0 number=" + std::to_string(i) + "\nop " +
              std::to_string(i * step_ns) + ".." +
              std::to_string((i + 1) * step_ns) + " thread=0 aten::mm\n";
    }
    return TraceFromText(text);
  };
  const Comparison c =
      Compare(with_batch(32, 100'000'000), with_batch(64, 160'000'000));
  EXPECT_TRUE(c.batch_normalised);
  EXPECT_NEAR(c.measured.expected_ms, 20, 1e-6);
}

// How long ops take on the host depends on how full the queue is.
TEST(CompareTest, ComparesOpsByTheirKernels) {
  const auto run = [](double host_us, double kernel_us) {
    GpuText text;
    for (int i = 0; i < 6; ++i) {
      text.Begin("op", "aten::mm");
      text.Pass(host_us);
      text.Kernel(kernel_us, "gemm");
      text.End();
      text.Synchronize("cudaDeviceSynchronize");
      text.EndStep();
    }
    return text.Build();
  };
  EXPECT_TRUE(Compare(run(10, 4'000), run(500, 4'000)).ops.empty());
  const Comparison c = Compare(run(10, 4'000), run(10, 3'000));
  ASSERT_EQ(c.ops.size(), 1u);
  EXPECT_NEAR(c.ops[0].before_ms, 4, 0.01);
  EXPECT_NEAR(c.ops[0].after_ms, 3, 0.01);
}

TEST(CompareTest, SaysWhatKernelsAndOpsChanged) {
  const auto with = [](const char* name, int64_t ns) {
    std::string text;
    for (int i = 0; i < 3; ++i) {
      const int64_t base = i * 10'000'000;
      text += "step " + std::to_string(base) + ".." +
              std::to_string(base + 10'000'000) +
              " thread=0 number=" + std::to_string(i) + "\nruntime_call " +
              std::to_string(base) + ".." + std::to_string(base + 1000) +
              " thread=0 correlation=" + std::to_string(i + 1) +
              " cudaLaunchKernel\nkernel " + std::to_string(base + 2'000) +
              ".." + std::to_string(base + 2'000 + ns) +
              " correlation=" + std::to_string(i + 1) + " " + name + "\n";
    }
    return TraceFromText(text);
  };
  const Comparison c =
      Compare(with("slow", 6'000'000), with("fast", 2'000'000));
  ASSERT_EQ(c.kernels.size(), 2u);
  EXPECT_EQ(c.kernels[0].name, "slow");
  EXPECT_NEAR(c.kernels[0].before_ms, 6, 1e-9);
  EXPECT_DOUBLE_EQ(c.kernels[0].after_ms, 0);
  EXPECT_DOUBLE_EQ(c.kernels[1].after_calls, 1);
}

TEST(CompareTest, DoubtsThatTwoProgramsAreOne) {
  const auto of = [](const std::string& op) {
    CpuText text;
    for (int i = 0; i < 3; ++i) {
      text.Op(op, 6'000);
      text.Op("aten::add", 2'000);
      text.EndStep();
    }
    return text.Recorded();
  };
  const Comparison two = Compare(of("aten::conv2d"), of("aten::bmm"));
  EXPECT_NEAR(two.shared_ops_frac, 0.25, 1e-9);
  EXPECT_NE(Unwrapped(two).find(
                "Are these runs of the same program? Ops found in both"),
            std::string::npos);
  EXPECT_NE(ToMarkdown(two).find("- **doubt** "), std::string::npos);
  const Comparison one = Compare(of("aten::bmm"), of("aten::bmm"));
  EXPECT_NEAR(one.shared_ops_frac, 1, 1e-9);
  EXPECT_EQ(Unwrapped(one).find("doubt"), std::string::npos);
}

// Three steps of a layer that takes `us` for `batch` samples. `parameters` are
// the shapes of the gradients.
Trace Layer(int batch, int64_t us, const std::vector<std::string>& parameters) {
  CpuText text;
  for (int i = 0; i < 3; ++i) {
    text.Op("inputs=(float[8],float[" + std::to_string(batch) +
                ",16],float[16,8]) aten::addmm",
            us);
    for (const std::string& shape : parameters) {
      text.Op("inputs=(float" + shape + ") torch::autograd::AccumulateGrad",
              100);
    }
    text.EndStep();
  }
  return text.Recorded();
}

TEST(CompareTest, ShapesTellTheBatchWhereTheLoaderIsUnknown) {
  const Comparison c =
      Compare(Layer(32, 10'000, {"[16,8]"}), Layer(64, 16'000, {"[16,8]"}));
  EXPECT_TRUE(c.batch_normalised);
  EXPECT_DOUBLE_EQ(c.batch_scale, 0.5);
  EXPECT_NEAR(c.measured.expected_ms, 10.1 - 16.1 / 2, 1e-6);
  EXPECT_EQ(c.doubt, "");
  // The text uses one unit for the whole page; JSON keeps the recorded times.
  ASSERT_FALSE(c.ops.empty());
  EXPECT_DOUBLE_EQ(c.ops[0].after_ms, 16);
  EXPECT_NE(Unwrapped(c).find("aten::addmm 10.0 8.00 -2.00 1.00 > 0.50"),
            std::string::npos)
      << ToText(c);
  EXPECT_NE(ToMarkdown(c).find("| 10.0 | 8.00 | -2.00 | 1.00 to 0.50 |"),
            std::string::npos)
      << ToMarkdown(c);
}

TEST(CompareTest, DoubtsThatOtherParametersAreOneModel) {
  const Trace one = Layer(32, 10'000, {"[16,8]", "[8]"});
  const Comparison more =
      Compare(one, Layer(32, 10'000, {"[16,8]", "[8]", "[8]"}));
  EXPECT_NE(more.doubt.find("2 parameters with gradients per step in the "
                            "first trace, 3 parameters in the second"),
            std::string::npos)
      << more.doubt;
  EXPECT_NE(Unwrapped(more).find(
                "Are these runs of the same program? The models differ"),
            std::string::npos);
  const Comparison other = Compare(one, Layer(32, 10'000, {"[16,9]", "[9]"}));
  EXPECT_NE(other.doubt.find("only 0 % of the parameters' shapes"),
            std::string::npos)
      << other.doubt;
  // Twice the backward passes of the same model: gradient accumulation.
  const Comparison twice =
      Compare(one, Layer(32, 10'000, {"[16,8]", "[8]", "[16,8]", "[8]"}));
  EXPECT_EQ(twice.doubt, "");
}

// torch.profiler records neither threads nor workers, so a finding that
// disappeared counts as followed advice.
TEST(CompareTest, AdviceWhoseSettingIsUnknownCountsAsFollowed) {
  const auto loading = [](const char* iterator, int64_t us) {
    CpuText text;
    for (int i = 0; i < 5; ++i) {
      text.Begin();
      text.Pass(us);
      text.EndRange("kind=loader enumerate(DataLoader)#_" +
                    std::string(iterator) + "DataLoaderIter.__next__");
      text.Op("aten::mm", 40'000);
      text.EndStep();
    }
    return text.Recorded();
  };
  const Comparison c =
      Compare(loading("SingleProcess", 30'000), loading("MultiProcessing", 50));
  EXPECT_EQ(c.resolved_findings,
            (std::vector<std::string>{"sync-data-loading"}));
  EXPECT_NE(c.predicted_kind, GainKind::kNone);
  EXPECT_EQ(Unwrapped(c).find("predicted nothing"), std::string::npos)
      << ToText(c);
}

TEST(CompareTest, AFindingThatHasLostMostOfItsGainWasFollowed) {
  const auto waiting = [](int64_t us) {
    CpuText text;
    for (int i = 0; i < 5; ++i) {
      text.Begin();
      text.Pass(us);
      text.EndRange(
          "kind=loader "
          "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__");
      text.Op("aten::mm", 40'000);
      text.EndStep();
    }
    return text.Recorded();
  };
  const Comparison c = Compare(waiting(40'000), waiting(10'000));
  EXPECT_EQ(c.remaining_findings,
            (std::vector<std::string>{"loader-bound", "cores-idle"}));
  EXPECT_EQ(c.reduced_findings, (std::vector<std::string>{"loader-bound"}));
  EXPECT_EQ(c.predicted_kind, GainKind::kBound);
  EXPECT_TRUE(
      Compare(waiting(40'000), waiting(30'000)).reduced_findings.empty());
}

TEST(CompareTest, MarkdownShowsNamesAsTheyAre) {
  const auto with = [](int64_t us) {
    CpuText text;
    for (int i = 0; i < 3; ++i) {
      text.Op("a|b*", us, 10'000 - us);
      text.EndStep();
    }
    return text.Recorded();
  };
  const std::string text = ToMarkdown(Compare(with(6'000), with(2'000)));
  EXPECT_NE(text.find("| `a\\|b*` | 6.00 | 2.00 | -4.00 | 1.00 to 1.00 |"),
            std::string::npos)
      << text;
}

// Three steps of 10 ms each.
CpuText Steady(const std::string& head) {
  CpuText text(head);
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::bmm", 10'000);
    text.EndStep();
  }
  return text;
}

TEST(CompareTest, BeginsWithWhatIsMissing) {
  const Trace cut =
      Steady(
          "loss severity=error detail=\"the file is cut off. Events after "
          "that point are missing\" truncated-file\n")
          .Recorded();
  const Trace whole = Steady("").Recorded();
  const Comparison first = Compare(cut, whole);
  EXPECT_TRUE(ToText(first).starts_with(
      "doubt     The first trace is incomplete, so these are not equal "
      "recordings: the file is cut off.\nbefore "))
      << ToText(first);
  EXPECT_NE(ToJson(first).find("\"doubt\": \"the first trace is incomplete"),
            std::string::npos)
      << ToJson(first);
  EXPECT_NE(ToMarkdown(first).find("- **doubt** The first trace"),
            std::string::npos);
  EXPECT_NE(Unwrapped(first).find("predicted nothing, because no gains"),
            std::string::npos);
  EXPECT_NE(Unwrapped(Compare(whole, cut)).find("The second trace is incomp"),
            std::string::npos);
  EXPECT_NE(Unwrapped(Compare(cut, cut)).find("Both traces are incomplete"),
            std::string::npos);
  EXPECT_EQ(ToText(Compare(whole, whole)).find("doubt"), std::string::npos);
}

// An incomplete recording claims no gains. That does not mean that the other
// recording's findings are resolved.
TEST(CompareTest, AnIncompleteTraceResolvesNoFinding) {
  const Trace whole = Simulate(Loading()).trace;
  const Trace cut = Steady("loss severity=error truncated-file\n").Recorded();
  const Comparison c = Compare(whole, cut);
  EXPECT_TRUE(c.resolved_findings.empty());
  EXPECT_EQ(c.predicted_kind, GainKind::kNone);
  EXPECT_TRUE(Compare(cut, whole).new_findings.empty());
}

TEST(CompareTest, SaysWhatPartOfTheChangeIsRecordingCost) {
  const auto recorded = [](int64_t cost_us, int64_t us) {
    CpuText text("run op_cost_ns=" + std::to_string(cost_us * 1'000) + "\n");
    for (int i = 0; i < 3; ++i) {
      text.Op("aten::bmm", us, 6'000);
      text.EndStep();
    }
    return text.Recorded();
  };
  // Steps of 26 ms with 5 ms of recording cost, and of 16 ms with 1 ms.
  Comparison c = Compare(recorded(5'000, 20'000), recorded(1'000, 10'000));
  EXPECT_NEAR(c.before.recording_ms, 5, 0.01);
  EXPECT_NEAR(c.after.recording_ms, 1, 0.01);
  EXPECT_NE(Unwrapped(c).find("1.6x. About 4.00 ms of that are recording cost: "
                              "5.00 ms per step in the first run, 1.00 ms in "
                              "the second. Time both without the profiler."),
            std::string::npos)
      << ToText(c);
  c.before.recording_estimated = true;
  EXPECT_NE(Unwrapped(c).find("second (an estimate, good to a factor of 2)."),
            std::string::npos);
  c.after.recording_ms = 0;
  EXPECT_NE(Unwrapped(c).find("About 5.00 ms of that are recording cost: 5.00 "
                              "ms per step in the first run, none known in"),
            std::string::npos);
  c.before.recording_ms = 12;
  EXPECT_NE(Unwrapped(c).find("All of that may be recording cost: 12.0 ms"),
            std::string::npos);
  c.after.recording_ms = 14;
  EXPECT_NE(Unwrapped(c).find("Recording cost hides a gain of about 2.00 ms"),
            std::string::npos);
  // The costs differ by more than 5 % of 26 ms.
  c.after.recording_ms = 10.75;
  EXPECT_EQ(Unwrapped(c).find("ecording cost"), std::string::npos);
  c.after.recording_ms = 10.65;
  EXPECT_NE(Unwrapped(c).find("ecording cost"), std::string::npos);
}

TEST(CompareTest, NeedsStepsOnBothSides) {
  const Trace none = TraceFromText("op 0..1000000 thread=0 aten::mm\n");
  const Comparison neither = Compare(none, none);
  EXPECT_EQ(neither.before.steps, 0);
  const std::string text = Unwrapped(neither);
  EXPECT_NE(text.find("before no steps; the whole recording takes 1.00 ms"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("The steps cannot be compared: neither trace has step "
                      "marks, and nothing in them recurs like a step. Call "
                      "prof.step() (in C++ Step()) once per iteration and "
                      "record again."),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("steady"), std::string::npos) << text;
  EXPECT_TRUE(Compare(Steady("").Recorded(), none)
                  .why_not.starts_with("the second trace has no step marks, "
                                       "and nothing in it recurs"));
  // A step mark of length 0.
  const Trace empty = TraceFromText(
      "step 5..5 thread=0 number=0\nop 0..1000000 thread=0 aten::mm\n");
  EXPECT_TRUE(Compare(empty, Steady("").Recorded())
                  .why_not.starts_with("the first trace has no usable step"));
}

}  // namespace
}  // namespace stepscope::compare_test
