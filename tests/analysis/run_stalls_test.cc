// Finds stalls in runs made up step by step, so that the truth is known.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/whole_run.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "support/trace_text.h"

namespace stepscope::run_stalls_test {
namespace {

using Rhythm = RunStall::Rhythm;

// Length of each step in ms, starting with step 0.
using StepsMs = std::vector<double>;

// Returns what StepTimer (profiler/session) would record of this run.
RunTimes TimesOf(const StepsMs& steps, std::vector<StepNumbers> recorded = {}) {
  RunTimes times;
  times.steps = static_cast<int64_t>(steps.size());
  times.recorded = std::move(recorded);
  const auto on = [&](int64_t number) {
    for (const StepNumbers& span : times.recorded) {
      if (number >= span.first && number < span.end) return true;
    }
    return false;
  };
  std::vector<double> sorted;
  for (int64_t i = 1; i < times.steps; ++i) {
    if (!on(i)) sorted.push_back(steps[static_cast<size_t>(i)]);
  }
  std::ranges::sort(sorted);
  const auto at = [&](double frac) {
    return std::llround(
        sorted[static_cast<size_t>(frac * (sorted.size() - 1))] * 1e6);
  };
  times.timed = static_cast<int64_t>(sorted.size());
  times.p5_ns = at(0.05);
  times.median_ns = at(0.5);
  times.p95_ns = at(0.95);
  times.max_ns = at(1);
  times.noise_ns = std::llround((at(0.5) - at(0.25)) / 0.6745);
  for (int64_t i = 1; i < times.steps; ++i) {
    const int64_t ns = std::llround(steps[static_cast<size_t>(i)] * 1e6);
    if (ns == times.max_ns) times.max_step = i;
    if (!on(i) && ns >= 1.2 * times.median_ns) {
      times.slow.push_back({i, times.all_ns, ns, times.median_ns});
    }
    times.all_ns += ns;
  }
  return times;
}

// Returns steps of 20 ms that vary by 3 %.
StepsMs QuietRun(size_t steps, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> length(20, 0.6);
  StepsMs run(steps);
  for (double& ms : run) ms = length(random);
  run[0] = 900;
  return run;
}

// Adds `ms` to each step for which `stalls` is true. Returns the total added
// time in ms.
double Add(StepsMs& run, double ms,
           const std::function<bool(int64_t)>& stalls) {
  double added = 0;
  for (size_t i = 1; i < run.size(); ++i) {
    if (!stalls(static_cast<int64_t>(i))) continue;
    run[i] += ms;
    added += ms;
  }
  return added;
}

double Sum(const StepsMs& run) {
  double sum = 0;
  for (size_t i = 1; i < run.size(); ++i) sum += run[i];
  return sum;
}

const RunStall* Every(const WholeRun& run, double period) {
  for (const RunStall& stall : run.stalls) {
    if (stall.rhythm == Rhythm::kEvery && stall.period_steps == period) {
      return &stall;
    }
  }
  return nullptr;
}

// 500 steps with a checkpoint in every 60th step, validation in every 100th,
// and a collector that pauses in about every 37th. The default schedule records
// only three of the steps.
TEST(RunStallsTest, EachKindIsNamedWithItsPeriodAndItsShare) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    StepsMs run = QuietRun(500, seed);
    const double checkpoint =
        Add(run, 80, [](int64_t i) { return i % 60 == 0; });
    const double validation =
        Add(run, 150, [](int64_t i) { return i % 100 == 0; });
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<int64_t> gap(31, 43);
    int64_t next = gap(random);
    int64_t pauses = 0;
    const double collector = Add(run, 30, [&](int64_t i) {
      if (i < next) return false;
      next += gap(random);
      ++pauses;
      return true;
    });
    const double all = Sum(run);
    const WholeRun found = AnalyzeRun(TimesOf(run, {{3, 9}}));

    const RunStall* saved = Every(found, 60);
    ASSERT_NE(saved, nullptr) << "seed " << seed;
    EXPECT_EQ(saved->count, 8);
    EXPECT_NEAR(saved->frac, checkpoint / all, 0.1 * checkpoint / all) << seed;
    const RunStall* validated = Every(found, 100);
    ASSERT_NE(validated, nullptr) << "seed " << seed;
    EXPECT_NEAR(validated->frac, validation / all, 0.1 * validation / all);
    const auto paused =
        std::ranges::find(found.stalls, Rhythm::kSteps, &RunStall::rhythm);
    ASSERT_NE(paused, found.stalls.end()) << "seed " << seed;
    EXPECT_NEAR(paused->period_steps, 37, 3.7) << "seed " << seed;
    EXPECT_NEAR(paused->frac, collector / all, 0.1 * collector / all) << seed;
    EXPECT_EQ(paused->count, pauses);
    EXPECT_EQ(found.stalls.size(), 3u) << "seed " << seed;
  }
}

// A loop that was resumed at step 1000.
TEST(RunStallsTest, StepsKeepTheirNumbersAndPeriods) {
  StepsMs run = QuietRun(500, 1);
  Add(run, 80, [](int64_t i) { return i % 60 == 0; });
  RunTimes times = TimesOf(run, {{3, 9}});
  const WholeRun from_0 = AnalyzeRun(times);
  times.first_step = 1000;
  times.max_step += 1000;
  for (SlowStep& step : times.slow) step.number += 1000;
  for (StepNumbers& span : times.recorded) {
    span = {span.first + 1000, span.end + 1000};
  }
  const WholeRun resumed = AnalyzeRun(times);
  const RunStall* saved = Every(from_0, 60);
  const RunStall* also = Every(resumed, 60);
  ASSERT_NE(saved, nullptr);
  ASSERT_NE(also, nullptr);
  EXPECT_EQ(also->count, saved->count);
  EXPECT_EQ(also->first_step, saved->first_step + 1000);
  EXPECT_EQ(also->last_step, saved->last_step + 1000);
  EXPECT_EQ(also->frac, saved->frac);
}

TEST(RunStallsTest, AQuietRunHasNoStalls) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const WholeRun found = AnalyzeRun(TimesOf(QuietRun(500, seed)));
    EXPECT_TRUE(found.stalls.empty()) << "seed " << seed;
    EXPECT_NEAR(found.median_ms, 20, 0.2);
    EXPECT_EQ(found.steps, 499);
  }
}

// Now and then, three slow steps at random places are evenly spaced by chance.
TEST(RunStallsTest, RandomSlowStepsAreNoRhythm) {
  int claimed = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    StepsMs run = QuietRun(500, seed);
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<size_t> place(1, 499);
    for (int i = 0; i < 15; ++i) run[place(random)] += 40;
    for (const RunStall& stall : AnalyzeRun(TimesOf(run)).stalls) {
      claimed += stall.rhythm != Rhythm::kIrregular;
    }
  }
  EXPECT_LE(claimed, 1);
}

TEST(RunStallsTest, ABurstyLoaderIsARhythmOfFewSteps) {
  StepsMs run = QuietRun(200, 1);
  const double waits = Add(run, 60, [](int64_t i) { return i % 4 == 1; });
  const WholeRun found = AnalyzeRun(TimesOf(run));
  ASSERT_EQ(found.stalls.size(), 1u);
  EXPECT_EQ(found.stalls[0].period_steps, 4);
  EXPECT_EQ(found.stalls[0].count, 50);
  EXPECT_NEAR(found.stalls[0].frac, waits / Sum(run), 0.01);
  EXPECT_NEAR(found.stalls[0].extra_ms, 60, 1);
}

// The times of recorded steps are missing. A stall in such a step does not
// break the rhythm.
TEST(RunStallsTest, ARecordedStepIsNoMiss) {
  StepsMs run = QuietRun(100, 1);
  Add(run, 60, [](int64_t i) { return i % 20 == 19; });
  const WholeRun found = AnalyzeRun(TimesOf(run, {{35, 42}}));
  ASSERT_EQ(found.stalls.size(), 1u);
  EXPECT_EQ(found.stalls[0].rhythm, Rhythm::kEvery);
  EXPECT_EQ(found.stalls[0].period_steps, 20);
  EXPECT_EQ(found.stalls[0].count, 4);
}

// Only every second stall is slow enough to count, so the detected period is
// twice as long.
TEST(RunStallsTest, ARhythmWithRegularHolesHasTheLongerPeriod) {
  StepsMs run = QuietRun(400, 1);
  Add(run, 60, [](int64_t i) { return i % 40 == 0; });
  Add(run, 2, [](int64_t i) { return i % 40 == 20; });
  const WholeRun found = AnalyzeRun(TimesOf(run));
  ASSERT_EQ(found.stalls.size(), 1u);
  EXPECT_EQ(found.stalls[0].period_steps, 40);
}

TEST(RunStallsTest, ThreeInALineAreTooFewInAShortRun) {
  StepsMs run = QuietRun(200, 1);
  Add(run, 60, [](int64_t i) { return i % 55 == 0; });
  const WholeRun found = AnalyzeRun(TimesOf(run));
  ASSERT_EQ(found.stalls.size(), 1u);
  EXPECT_EQ(found.stalls[0].rhythm, Rhythm::kIrregular);
  EXPECT_EQ(found.stalls[0].count, 3);
}

// A timer fires every 3 s while the steps become shorter, so the number of
// steps between two stalls grows.
TEST(RunStallsTest, AStallStartedByATimerHasAPeriodInSeconds) {
  StepsMs run(2000);
  double now_ms = 0;
  double next_ms = 3000;
  for (size_t i = 0; i < run.size(); ++i) {
    run[i] = 40 - 0.015 * static_cast<double>(i);
    now_ms += run[i];
    if (now_ms < next_ms) continue;
    run[i] += 100;
    next_ms = now_ms + 3000;
    now_ms += 100;
  }
  RunTimes times = TimesOf(run);
  std::erase_if(times.slow,
                [](const SlowStep& step) { return step.ns < 90'000'000; });
  const WholeRun found = AnalyzeRun(times);
  ASSERT_EQ(found.stalls.size(), 1u);
  EXPECT_EQ(found.stalls[0].rhythm, Rhythm::kSeconds);
  EXPECT_NEAR(found.stalls[0].period_s, 3.1, 0.15);
}

TEST(RunStallsTest, NothingIsKnownOfNoSteps) {
  EXPECT_EQ(AnalyzeRun({}).steps, 0);
  EXPECT_EQ(ToText(AnalyzeRun({}), {}), "");
}

// Returns why the fourth of five 10 ms steps is slow: it takes `ms` and does
// `rows`.
std::string WhyFourth(int64_t ms, const std::string& rows) {
  std::string text = rows;
  int64_t now = 0;
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t end = now + (i == 3 ? ms : 10) * 1'000'000;
    text += "step " + std::to_string(now) + ".." + std::to_string(end) +
            " thread=0 number=" + std::to_string(i) + "\nop " +
            std::to_string(now) + ".." + std::to_string(now + 8'000'000) +
            " thread=0 aten::mm\n";
    now = end;
  }
  const Trace trace = TraceFromText(text);
  return SlowStepInWords(trace, Analyze(trace), 3);
}

TEST(SlowStepTest, IsExplainedByTheRangeThatTakesLonger) {
  EXPECT_EQ(WhyFourth(40,
                      "range 39000000..68000000 thread=0 save\n"
                      "range 40000000..60000000 thread=0 inner\n"),
            "a checkpoint or heavy logging, \"save\" takes 29.0 ms longer");
}

TEST(SlowStepTest, IsExplainedByItsCauseWhereNoRangeIs) {
  EXPECT_EQ(WhyFourth(40, "range 39000000..49000000 thread=0 short\n"),
            "code between ops takes 30.0 ms longer");
  EXPECT_EQ(WhyFourth(11, ""), "");  // the step is not slow
}

TEST(WholeRunTextTest, SaysPeriodShareAndCause) {
  WholeRun run{.steps = 490,
               .seconds = 12.3,
               .median_ms = 20.1,
               .p5_ms = 19.2,
               .p95_ms = 22,
               .max_ms = 250,
               .max_step = 300};
  run.stalls.push_back({.count = 8,
                        .last_step = 480,
                        .rhythm = Rhythm::kEvery,
                        .period_steps = 62,
                        .extra_ms = 80,
                        .frac = 0.052,
                        .cause = "saving",
                        .cause_step = 248});
  run.stalls.push_back({.count = 13,
                        .rhythm = Rhythm::kSteps,
                        .period_steps = 37.25,
                        .extra_ms = 30,
                        .frac = 0.031});
  const std::string text = ToText(run, {.width = 400});
  EXPECT_EQ(text,
            "whole run: 490 steps timed in 12.3 s; usual step 20.1 ms without "
            "the profiler (5 to 95 %: 19.2 to 22.0 ms), longest 250 ms (step "
            "300)\n  every 62nd step (last: 480) takes 80.0 ms longer: 8 "
            "times, 5 % of the run; step 248 was recorded: saving\n  one step "
            "in about 37.2 takes 30.0 ms longer: 13 times, 3 % of the run\n");
  Report report;
  report.whole_run = run;
  EXPECT_NE(ToText(report, {.width = 400}).find(text), std::string::npos);
  EXPECT_NE(ToMarkdown(report).find("every 62nd step"), std::string::npos);
  EXPECT_NE(ToJson(report).find("\"rhythm\": \"every\""), std::string::npos);
}

// Stalls of less than 1 % without a rhythm, or less than 0.1 % with one, appear
// only in the JSON.
TEST(WholeRunTextTest, LeavesOutWhatTakesNothing) {
  WholeRun run{.steps = 490, .seconds = 12.3, .median_ms = 20.1};
  run.stalls.push_back({.count = 3, .extra_ms = 5, .frac = 0.0099});
  run.stalls.push_back({.count = 4,
                        .rhythm = Rhythm::kEvery,
                        .period_steps = 11,
                        .frac = 0.0009});
  EXPECT_EQ(ToText(run, {}).find("slow"), std::string::npos);
  EXPECT_EQ(ToText(run, {}).find("11th"), std::string::npos);
  EXPECT_NE(StatusText(run, 500).find("500 steps"), std::string::npos);
  run.steps = 19;
  EXPECT_EQ(ToText(run, {}), "");
  EXPECT_EQ(StatusText(run, 20), "");
}

}  // namespace
}  // namespace stepscope::run_stalls_test
