#include "cube/expectation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/export.h>
#include <stepscope/logdir.h>

#include <filesystem>
#include <string>

#include "analysis/rules/gpu_text.h"
#include "analysis/simulator.h"
#include "samples/temporary_folder.h"

namespace cube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ExpectationTest : public ::testing::Test {
 protected:
  // What a profile leaves of `trace`.
  measure::Advice Profiled(const stepscope::Trace& trace) {
    const stepscope::LogPaths paths =
        stepscope::PathsFor(folder_.path(), "run", "host", 0, 0);
    std::filesystem::create_directories(
        std::filesystem::path(paths.chrome_kineto).parent_path());
    const absl::Status written = stepscope::WriteTrace(
        trace, {}, stepscope::Format::kChromeKineto, paths.chrome_kineto);
    EXPECT_TRUE(written.ok()) << written.message();
    absl::StatusOr<measure::Advice> advice = measure::ParseAdvice(
        stepscope::ToJson(stepscope::Analyze(trace)), paths.advice);
    EXPECT_TRUE(advice.ok()) << advice.status().message();
    return advice.ok() ? *advice : measure::Advice();
  }

  resnet::TemporaryFolder folder_;
};

// Not measured: Expect() needs no rates.
Cube Crossed(std::vector<measure::Factor> factors, const char* base = "") {
  Cube cube{std::move(factors), {}, {}};
  cube.points = measure::Cross(cube.factors, *measure::Settings::Parse(base));
  return cube;
}

stepscope::Loop LoopOf(const measure::Settings& settings) {
  return {.steps = 6,
          .warmup = 8,
          .batch_ms = 20,
          .ops = stepscope::Ops(10, 4),
          .threads = settings.Number("--threads", 1),
          .workers = settings.Number("--workers", 0),
          .cores = 2};
}

TEST_F(ExpectationTest, EveryPointOfFlagsThatReplayKnowsHasAFigure) {
  const Cube cube =
      Crossed({{"--threads", {"1", "2"}}, {"--workers", {"0", "1", "2"}}});
  const stepscope::LoopRun before = Simulate(LoopOf(cube.points[0].settings));
  const Expectation expected = Expect(Profiled(before.trace), cube);
  EXPECT_EQ(expected.why_not, "");
  EXPECT_THAT(expected.unknown, IsEmpty());
  ASSERT_EQ(expected.points.size(), 6u);
  EXPECT_DOUBLE_EQ(expected.points[0]->value, 1);
  for (size_t p = 0; p < cube.points.size(); ++p) {
    const measure::Settings& settings = cube.points[p].settings;
    ASSERT_TRUE(expected.points[p].has_value()) << settings.Text();
    const double truth =
        before.mean_step_ms / Simulate(LoopOf(settings)).mean_step_ms;
    EXPECT_NEAR(expected.points[p]->value / truth, 1, 0.15) << settings.Text();
    EXPECT_LE(expected.points[p]->interval.low, expected.points[p]->value);
    EXPECT_GE(expected.points[p]->interval.high, expected.points[p]->value);
  }
}

TEST_F(ExpectationTest, PairsAreExpectedTogetherToo) {
  const Cube cube =
      Crossed({{"--threads", {"1", "2"}}, {"--workers", {"0", "1"}}});
  const Expectation expected =
      Expect(Profiled(Simulate(LoopOf(cube.points[0].settings)).trace), cube);
  const std::vector<Pair> pairs = Pairs(AsCube(expected, cube));
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_NEAR(pairs[0].both.value, expected.points[3]->value, 1e-9);
  EXPECT_NEAR(pairs[0].beyond_product.value,
              expected.points[3]->value /
                  (expected.points[1]->value * expected.points[2]->value),
              1e-9);
  // Two cores: what one uses, the other cannot.
  EXPECT_LT(pairs[0].beyond_product.value, 0.9);
}

TEST_F(ExpectationTest, PointsWithAValueThatReplayDoesNotKnowHaveNone) {
  const Cube cube = Crossed({{"--pinned", {"off", "on"}},
                             {"--set-to-none", {"1", "0"}},
                             {"--threads", {"1", "2"}}});
  const Expectation expected =
      Expect(Profiled(Simulate(LoopOf({})).trace), cube);
  EXPECT_THAT(expected.unknown, ElementsAre("--pinned", "--set-to-none 0"));
  for (size_t p = 0; p < cube.points.size(); ++p) {
    const std::vector<size_t>& levels = cube.points[p].levels;
    EXPECT_EQ(expected.points[p].has_value(), levels[0] == 0 && levels[1] == 0);
  }
  EXPECT_EQ(AsCube(expected, cube).points.size(), 2u);
  EXPECT_THAT(Pairs(AsCube(expected, cube)), IsEmpty());
}

TEST_F(ExpectationTest, AValueThatIsTheDefaultChangesNothing) {
  const Cube cube = Crossed({{"--sgd", {"off", "loop"}}}, "--threads 1");
  const Expectation expected =
      Expect(Profiled(Simulate(LoopOf({})).trace), cube);
  EXPECT_DOUBLE_EQ(expected.points[1]->value, 1);
}

// Of a run with a GPU what a flag does is told by the finding that it follows.
TEST_F(ExpectationTest, AFindingTellsWhatNoSettingSays) {
  const Cube cube =
      Crossed({{"--pinned", {"off", "on"}}, {"--bf16", {"off", "on"}}},
              "--device cuda");
  const Expectation expected =
      Expect(Profiled(stepscope::PageableUploads()), cube);
  EXPECT_EQ(expected.why_not, "");
  EXPECT_THAT(expected.unknown, ElementsAre("--bf16"));
  ASSERT_TRUE(expected.points[2].has_value());
  EXPECT_GT(expected.points[2]->value, 1.2);
}

TEST_F(ExpectationTest, AGainOfTheWholeStepIsNoPromise) {
  const Cube cube = Crossed({{"--threads", {"1", "2"}}});
  measure::Advice advice = Profiled(Simulate(LoopOf({})).trace);
  advice.step_ms = 1;  // of some 60
  EXPECT_FALSE(Expect(advice, cube).points[1].has_value());
}

TEST_F(ExpectationTest, SaysWhyThereIsNone) {
  const Cube cube = Crossed({{"--threads", {"1", "2"}}});
  measure::Advice advice;
  advice.path = folder_.path() + "/c0/advice/rank0.json";
  const Expectation none = Expect(advice, cube);
  EXPECT_THAT(none.why_not, HasSubstr(folder_.path()));
  EXPECT_EQ(none.points.size(), 2u);
  EXPECT_THAT(AsCube(none, cube).points, IsEmpty());
}

}  // namespace
}  // namespace cube
