#include "rule_testing.h"
#include "support/cpu_loop.h"
#include "support/trace_text.h"

namespace stepscope::host_test {
namespace {

TEST(CoresIdleTest, FiresOnOneThreadOfTwo) {
  const Report report = Analyze(Simulate({.ops = Ops(40, 2.5)}).trace);
  const Finding* finding = Find(report, "cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 100 - 100 / 1.9, 2);
  EXPECT_NE(finding->fix_cpp.find("at::set_num_threads(2)"), std::string::npos);
}

TEST(CoresIdleTest, StaysSilentWhenThreadsEqualCores) {
  EXPECT_TRUE(IsClean(
      Analyze(Simulate({.ops = Ops(40, 2.5), .threads = 2, .cores = 2}).trace),
      "cores-idle"));
}

TEST(CoresIdleTest, CountsLoaderWorkersAsUsers) {
  EXPECT_TRUE(IsClean(
      Analyze(
          Simulate(
              {.batch_ms = 20, .ops = Ops(40, 2.5), .workers = 1, .cores = 2})
              .trace),
      "cores-idle"));
}

TEST(CoresIdleTest, StaysSilentWhereLittleIsParallel) {
  const auto with_parallel = [](double ms) {
    Loop loop{.ops = {{.name = "aten::nonzero", .ms = 10, .parallel = false},
                      {.ms = ms}}};
    return Analyze(Simulate(loop).trace);
  };
  EXPECT_TRUE(IsClean(with_parallel(4.0), "cores-idle"));   // 28 %
  EXPECT_TRUE(Promises(with_parallel(4.6), "cores-idle"));  // 31 %
}

TEST(CoresIdleTest, IsSkippedIfThreadsOrCoresWereNotRecorded) {
  const auto with = [](const char* op) {
    return Analyze(TraceFromText(
        std::string("step 0..1000000 thread=0\nop 0..900000 thread=0 ") + op +
        "\n"));
  };
  const Report report = with("aten::mm");
  const Finding* finding = Find(report, "cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 0.9 - 0.9 / 1.9, 0.001);
  EXPECT_NE(finding->fix_python.find("--cores N"), std::string::npos);
  EXPECT_NE(WhySkipped(with("aten::nonzero"), "cores-idle"), "");
}

TEST(CoresIdleTest, AsksOnlyForWhatIsNotKnown) {
  const auto with = [](int cores, int threads) {
    Trace trace = TraceFromText(
        "step 0..1000000 thread=0\nop 0..900000 thread=0 aten::mm\n");
    trace.TellMachine(cores, threads);
    return Analyze(trace);
  };
  const Report cores_known = with(2, -1);
  const Finding* finding = Find(cores_known, "cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("and 2 cores are usable, but the recording "
                                   "does not show how many threads"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.get_num_threads() is less than 2, "
                                     "analyze --threads T predicts"),
            std::string::npos)
      << finding->fix_python;
  EXPECT_EQ(finding->fix_cpp.find("--cores"), std::string::npos);

  const Report threads_known = with(-1, 4);
  finding = Find(threads_known, "cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("and run on 4 threads, but the recording "
                                   "does not show how many cores"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("analyze --cores N predicts"),
            std::string::npos)
      << finding->fix_python;
  EXPECT_TRUE(IsClean(with(1, -1), "cores-idle"));
}

TEST(CoresIdleTest, TrustsGivenThreadsAndCores) {
  const auto with = [](int threads) {
    Trace trace = TraceFromText(
        "step 0..100000000 thread=0 number=0\n"
        "op 0..90000000 thread=0 aten::mm\n"
        "step 100000000..200000000 thread=0 number=1\n"
        "op 100000000..190000000 thread=0 aten::mm\n");
    trace.TellMachine(2, threads);
    return Analyze(trace);
  };
  const Report report = with(1);
  ASSERT_NE(Find(report, "cores-idle"), nullptr);
  EXPECT_NEAR(Find(report, "cores-idle")->gain.expected_ms, 90 - 90 / 1.9, 1);
  EXPECT_TRUE(IsClean(with(2), "cores-idle"));
}

TEST(CoresIdleTest, IsSkippedOnGpuRuns) {
  EXPECT_NE(WhySkipped(Analyze(TraceFromText(R"(
    run usable_cores=8
    step 0..1000000 thread=0
    runtime_call 0..10 thread=0 correlation=1 cudaLaunchKernel
    kernel 10..900000 correlation=1 k
  )")),
                       "cores-idle")
                .find("without a GPU"),
            std::string::npos);
}

// Three CPU steps of 100 ms on 4 cores.
Report Busy(int threads, int workers, int64_t delay_ms, int64_t batch_ms = -1) {
  std::string text = "run usable_cores=4\n";
  for (int i = 0; i < 3; ++i) {
    const int64_t base = i * 100'000'000;
    const std::string span =
        std::to_string(base) + ".." + std::to_string(base + 100'000'000);
    const std::string step = " step=" + std::to_string(i);
    text += "step " + span + " thread=0 number=" + std::to_string(i) + "\nop " +
            span + " thread=0 aten::mm\n";
    text += "settings " + std::to_string(base) + step +
            " intra_op_threads=" + std::to_string(threads) + "\n";
    text += "host_usage " + span + step +
            " run_delay_ns=" + std::to_string(delay_ms * 1'000'000) +
            " loader_workers=" + std::to_string(workers) +
            (batch_ms < 0
                 ? ""
                 : " loader_cpu_ns=" + std::to_string(batch_ms * 1'000'000)) +
            "\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(CpuOversubscriptionTest, FiresWhereTheTrainingThreadWaitsForACore) {
  const Report report = Busy(4, 4, 20);
  const Finding* finding = Find(report, "cpu-oversubscription");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 20, 1e-6);
  EXPECT_NE(finding->evidence.find("4 loader workers share 4 cores"),
            std::string::npos)
      << finding->evidence;
}

// One thread would take 3 times as long as four. A batch takes the same time in
// any worker.
TEST(CpuOversubscriptionTest, IsANoteWhereFewerThreadsWouldCostMore) {
  const Report report = Busy(4, 4, 20, 10);
  ASSERT_TRUE(report.replay.valid) << report.replay.why_not;
  const Finding* finding = Find(report, "cpu-oversubscription");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kNone);
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
  EXPECT_NE(finding->evidence.find("would cost at least as much"),
            std::string::npos);
}

TEST(CpuOversubscriptionTest, StaysSilentOnSixtyFourIdleThreads) {
  EXPECT_TRUE(IsClean(Busy(64, 0, 0), "cpu-oversubscription"));
}

TEST(CpuOversubscriptionTest, BeginsAboveFiveQuartersOfTheCores) {
  EXPECT_TRUE(IsClean(Busy(4, 1, 20), "cpu-oversubscription"));
  EXPECT_FALSE(IsClean(Busy(4, 2, 20), "cpu-oversubscription"));
}

TEST(CpuOversubscriptionTest, BeginsAtFivePerCentOfTheStep) {
  EXPECT_TRUE(IsClean(Busy(8, 0, 4), "cpu-oversubscription"));
  EXPECT_FALSE(IsClean(Busy(8, 0, 5), "cpu-oversubscription"));
}

// Three steps of 10 ms. Each has a pause of `us` for the garbage collector.
Report Collecting(int64_t us) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const int64_t base = i * 10'000'000;
    text += "step " + std::to_string(base) + ".." +
            std::to_string(base + 10'000'000) +
            " thread=0 number=" + std::to_string(i) + "\nop " +
            std::to_string(base) + ".." + std::to_string(base + 5'000'000) +
            " thread=0 aten::mm\nrange " + std::to_string(base + 6'000'000) +
            ".." + std::to_string(base + 6'000'000 + us * 1000) +
            " thread=0 Python GC\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(GcPauseTest, FiresFromOnePerCentOfTheStep) {
  EXPECT_TRUE(IsClean(Collecting(90), "gc-pause"));
  const Report report = Collecting(500);
  const Finding* finding = Find(report, "gc-pause");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 0.5, 1e-6);
  EXPECT_NE(finding->fix_python.find("gc.freeze()"), std::string::npos);
}

// Twelve steps of 10 ms. In two of them, the collector runs for another `us`.
Report CollectingSometimes(int64_t us) {
  std::string text;
  int64_t now = 0;
  for (int i = 0; i < 12; ++i) {
    const int64_t length = 10'000'000 + (i % 6 == 3 ? us * 1000 : 0);
    text += "step " + std::to_string(now) + ".." +
            std::to_string(now + length) +
            " thread=0 number=" + std::to_string(i) + "\nop " +
            std::to_string(now) + ".." + std::to_string(now + 10'000'000) +
            " thread=0 aten::mm\n";
    if (i % 6 == 3) {
      text += "range " + std::to_string(now + 10'000'000) + ".." +
              std::to_string(now + length) + " thread=0 Python GC\n";
    }
    now += length;
  }
  return Analyze(TraceFromText(text));
}

TEST(GcPauseTest, CountsPausesOfStepsThatTheMeanLeavesOut) {
  const Report report = CollectingSometimes(20'000);
  EXPECT_EQ(report.steps.steady, 10);
  const Finding* finding = Find(report, "gc-pause");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 40.0 / 12, 1e-6);
  EXPECT_NEAR(finding->baseline_ms, 10 + 40.0 / 12, 1e-6);
  EXPECT_NE(finding->status, FindingStatus::kOk);
}

// Short collections in all steps would be a finding on their own.
TEST(GcPauseTest, ShortPausesOfAllStepsDoNotHideTheLongOnes) {
  std::string text;
  int64_t now = 0;
  for (int i = 0; i < 60; ++i) {
    const bool full = i == 20 || i == 50;
    const int64_t pause = full ? 190'000'000 : 370'000;
    text += "step " + std::to_string(now) + ".." +
            std::to_string(now + 6'000'000 + pause) +
            " thread=0 number=" + std::to_string(i) + "\nop " +
            std::to_string(now) + ".." + std::to_string(now + 6'000'000) +
            " thread=0 aten::mm\nrange " + std::to_string(now + 6'000'000) +
            ".." + std::to_string(now + 6'000'000 + pause) +
            " thread=0 Python GC\n";
    now += 6'000'000 + pause;
  }
  const Report report = Analyze(TraceFromText(text));
  const Finding* finding = Find(report, "gc-pause");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, (2 * 190 + 58 * 0.37) / 60, 0.01);
  EXPECT_NEAR(finding->baseline_ms, 6 + (2 * 190 + 58 * 0.37) / 60, 0.01);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_NE(finding->evidence.find("2 steps (30 steps apart) take 190 ms"),
            std::string::npos)
      << finding->evidence;
}

// Twenty steps of 10 ms without collector events. In steps 4, 11
// and 18, no op runs for `ms` more, while `frame` is open.
Report Stopping(int64_t ms, const std::string& frame = "",
                const std::string& run = "producer=torch.profiler") {
  std::string text = "run " + run + "\n";
  int64_t now = 0;
  for (int i = 0; i < 20; ++i) {
    const bool stops = i % 7 == 4;
    const int64_t end = now + 10'000'000 + (stops ? ms * 1'000'000 : 0);
    text += "step " + std::to_string(now) + ".." + std::to_string(end) +
            " thread=0 number=" + std::to_string(i) + "\nop " +
            std::to_string(now) + ".." + std::to_string(now + 9'990'000) +
            " thread=0 aten::mm\n";
    if (!frame.empty()) {
      text += "python_frame " + std::to_string(now + 9'990'000) + ".." +
              std::to_string(end) + " thread=0 " +
              (stops ? frame : "train.py(7): step") + "\n";
    }
    now = end;
  }
  return Analyze(TraceFromText(text));
}

TEST(GcPauseTest, IsAHintWhereStepsStopForNoRecordedReason) {
  const Report report = Stopping(40);
  const Finding* finding = Find(report, "gc-pause");
  ASSERT_NE(finding, nullptr) << WhySkipped(report, "gc-pause");
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // One step in seven stops; the result does not depend on where the recording
  // starts.
  EXPECT_NEAR(finding->gain.expected_ms, 40.0 / 7, 0.01);
  EXPECT_NEAR(finding->baseline_ms, 10 + 40.0 / 7, 0.01);
  EXPECT_NE(finding->evidence.find("3 steps of 20 (every 7th step) stop for "
                                   "40.0 ms"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(report.step_times[4].why, "runs no op for 40.0 ms");
  EXPECT_NE(
      ToText(report, TextOptions()).find("3 slow steps (4, 11, 18) raise"),
      std::string::npos);
  // An allocation in a function that every step runs may also trigger a
  // collection.
  EXPECT_NE(Find(Stopping(40, "train.py(7): step"), "gc-pause"), nullptr);
}

TEST(GcPauseTest, LeavesPausesThatHaveAnotherCauseAlone) {
  const auto could_not_look = [](const Report& report) {
    return WhySkipped(report, "gc-pause").find("record_python_gc_info") !=
           std::string::npos;
  };
  // The scheduler takes a core away for only a few ms.
  EXPECT_TRUE(could_not_look(Stopping(4)));
  // A function that other steps do not run does work of its own.
  const Report own = Stopping(40, "train.py(40): plot");
  EXPECT_TRUE(could_not_look(own));
  ASSERT_NE(Find(own, "logging-checkpoint-stall"), nullptr);
  EXPECT_EQ(Find(own, "logging-checkpoint-stall")->where, "train.py(40): plot");
  // A C++ program has no collector.
  EXPECT_TRUE(IsClean(Stopping(40, "", "language=c++"), "gc-pause"));
}

TEST(GcPauseTest, CouldNotLookWherePythonLeftNoSuchEvents) {
  const std::string steps =
      "step 0..100 thread=0 number=0\nstep 100..200 thread=0 number=1\n"
      "range 10..20 thread=0 forward\n";
  EXPECT_NE(WhySkipped(
                Analyze(TraceFromText("run producer=torch.profiler\n" + steps)),
                "gc-pause")
                .find("record_python_gc_info"),
            std::string::npos);
  // A C++ program has no such collector.
  EXPECT_TRUE(IsClean(Analyze(TraceFromText("run language=c++\n" + steps)),
                      "gc-pause"));
}

// A question about the machine ranks after findings that the recording shows,
// whatever its gain.
TEST(CoresIdleTest, RanksAfterFindingsThatTheRecordingShows) {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    const int64_t at = i * 10'000'000;
    const auto span = [&](int64_t from, int64_t to) {
      return std::to_string(at + from) + ".." + std::to_string(at + to) +
             " thread=0 ";
    };
    text += "step " + span(0, 10'000'000) + "number=" + std::to_string(i) +
            "\nop " + span(0, 8'000'000) + "aten::mm\nop " +
            span(9'700'000, 10'000'000) + "aten::mm\n";
  }
  const Report report = Analyze(TraceFromText(text));
  const auto place = [&](std::string_view id) {
    return std::ranges::find(report.findings, id, &Finding::id) -
           report.findings.begin();
  };
  ASSERT_NE(Find(report, "cores-idle"), nullptr);
  ASSERT_NE(Find(report, "python-between-ops"), nullptr);
  EXPECT_LT(place("python-between-ops"), place("cores-idle"));
}

}  // namespace
}  // namespace stepscope::host_test
