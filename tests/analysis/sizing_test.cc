#include "engine/sizing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context/analysis_context.h"
#include "context/noise.h"
#include "context/rule.h"
#include "engine/outcomes.h"
#include "ops/student_t.h"
#include "support/cpu_loop.h"
#include "support/gpu_loop.h"

namespace stepscope::sizing_test {
namespace {

// A loop on one thread with eight cores. Ops and loading take half of the step
// each.
class SizingTest : public testing::Test {
 protected:
  SizingTest() {
    found_.finding.evidence = "Seen.";
    found_.finding.fix_cpp = "the usual fix";
    found_.finding.collectives_frac = 0.9;
  }
  void SetUp() override {
    ASSERT_TRUE(context_.replay.check().valid)
        << context_.replay.check().why_not;
  }
  double StepNs(const Edit& edit) const { return context_.replay.StepNs(edit); }
  void AddThreads(int threads) {
    Alternative more{.edit = {.threads = threads}};
    more.wording.fix_cpp = std::to_string(threads) + " threads";
    found_.alternatives.push_back(std::move(more));
  }

  const LoopRun run_ =
      Simulate({.batch_ms = 100, .ops = Ops(40, 5), .cores = 8});
  const AnalysisContext context_{run_.trace};
  Found found_;
};

TEST_F(SizingTest, ProposesTheShortestStepAndSaysHowToGetThere) {
  for (int threads : {2, 8, 4}) AddThreads(threads);
  const std::optional<SizedFinding> sized = Size(context_, found_);
  ASSERT_TRUE(sized);
  EXPECT_EQ(sized->edits[0].threads, 8);
  EXPECT_EQ(sized->edits.size(), 3u);
  EXPECT_EQ(sized->finding.fix_cpp, "8 threads");
  EXPECT_EQ(sized->finding.gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(sized->finding.gain.expected_ms,
              (StepNs({}) - StepNs({.threads = 8})) * 1e-6, 1e-6);
  EXPECT_GT(sized->finding.speedup, 1);
  EXPECT_EQ(sized->finding.collectives_frac, 0);
}

TEST_F(SizingTest, NeedsAMinimumGainOfALaterAlternative) {
  for (int threads : {4, 8}) AddThreads(threads);
  const double saved = 1 - StepNs({.threads = 8}) / StepNs({.threads = 4});
  ASSERT_GT(saved, 0.001);
  found_.worth = saved - 0.001;
  EXPECT_EQ(Size(context_, found_)->edits[0].threads, 8);
  found_.worth = saved + 0.001;
  EXPECT_EQ(Size(context_, found_)->edits[0].threads, 4);
}

TEST_F(SizingTest, FollowsALadderAsFarAsItHolds) {
  for (int threads : {2, 4, 8}) AddThreads(threads);
  found_.choice = Choice::kLadder;
  const double third = 1 - StepNs({.threads = 8}) / StepNs({.threads = 4});
  found_.worth = third + 0.001;
  std::optional<SizedFinding> sized = Size(context_, found_);
  ASSERT_TRUE(sized);
  ASSERT_EQ(sized->edits.size(), 2u);
  EXPECT_EQ(sized->edits[0].threads, 4);
  EXPECT_EQ(sized->edits[1].threads, 2);
  found_.worth = 0.9;
  EXPECT_FALSE(Size(context_, found_));
}

TEST_F(SizingTest, SaysThatAPredictedGainIsSmall) {
  found_.alternatives = {{Edit{.dispatch_ns = 1e9}}};
  found_.bound_ns = 1e9;
  found_.if_small.evidence = " Only {gain}.";
  SizedFinding sized = *Size(context_, found_);
  EXPECT_EQ(sized.finding.gain_kind, GainKind::kNone);
  EXPECT_EQ(sized.finding.evidence, "Seen. Only 0 ms.");
  EXPECT_EQ(sized.finding.fix_cpp, "the usual fix");
  EXPECT_EQ(sized.edits.size(), 1u);

  found_.if_small.fix_cpp = "another fix";
  found_.alternatives[0].wording.assumption = "the change is made";
  sized = *Size(context_, found_);
  EXPECT_EQ(sized.finding.fix_cpp, "another fix");
  EXPECT_EQ(sized.finding.assumption, "");
  EXPECT_TRUE(sized.edits.empty());
}

TEST_F(SizingTest, TakesTheRangeFromTheBestCase) {
  AddThreads(2);
  found_.best_case = Edit{.threads = 8};
  const Gain gain = Size(context_, found_)->finding.gain;
  EXPECT_EQ(gain.low_ms, 0);
  EXPECT_NEAR(gain.high_ms, (StepNs({}) - StepNs({.threads = 8})) * 1e-6, 1e-6);
}

TEST_F(SizingTest, TheRangeEndsAtTheBound) {
  found_.alternatives = {{Edit{.workers = 2}}};
  const Gain free = Size(context_, found_)->finding.gain;
  ASSERT_GT(free.high_ms, free.expected_ms);
  const double between_ms = (free.expected_ms + free.high_ms) / 2;
  // A bound is a mean over the recorded steps, so it includes their noise.
  const auto steps = static_cast<double>(context_.stats.steady);
  const double noise = StudentT(static_cast<size_t>(steps - 1), Within::k95) *
                       RobustCov(context_) / std::sqrt(steps);
  found_.bound_ns = between_ms * 1e6 / (1 + noise);
  Gain gain = Size(context_, found_)->finding.gain;
  EXPECT_NEAR(gain.high_ms, between_ms, 1e-6);
  EXPECT_DOUBLE_EQ(gain.expected_ms, free.expected_ms);
  EXPECT_DOUBLE_EQ(gain.low_ms, free.low_ms);
  // The range does not end below the expected gain.
  found_.bound_ns = free.expected_ms * 1e6 / 2;
  gain = Size(context_, found_)->finding.gain;
  EXPECT_DOUBLE_EQ(gain.high_ms, free.expected_ms);
  // A larger bound changes nothing.
  found_.bound_ns = 2 * free.high_ms * 1e6;
  EXPECT_DOUBLE_EQ(Size(context_, found_)->finding.gain.high_ms, free.high_ms);
}

// The only recorded step may be a fifth shorter than the usual one.
TEST_F(SizingTest, ALoneStepMayHaveBeenShort) {
  AnalysisContext context(run_.trace);
  context.stats.steady = 1;
  found_.alternatives = {{Edit{.workers = 2}}};
  const Gain free = Size(context, found_)->finding.gain;
  ASSERT_GT(free.high_ms, free.expected_ms);
  const double between_ms = (free.expected_ms + free.high_ms) / 2;
  found_.bound_ns = between_ms * 1e6 / 1.2;
  EXPECT_NEAR(Size(context, found_)->finding.gain.high_ms, between_ms, 1e-6);
}

// How much of these ops remains with two threads is just as uncertain in the
// bound.
TEST_F(SizingTest, ABoundThatIsAssumedDoesNotEndTheRange) {
  AddThreads(8);
  const Gain free = Size(context_, found_)->finding.gain;
  ASSERT_GT(free.high_ms, free.expected_ms);
  found_.bound_ns = free.expected_ms * 1e6;
  EXPECT_DOUBLE_EQ(Size(context_, found_)->finding.gain.high_ms, free.high_ms);
}

// Removing ops saves more than they took in some of the known pairs.
TEST_F(SizingTest, ABoundDoesNotEndTheRangeOfReplacedOps) {
  const Op& op = run_.trace.ops().front();
  const HostCut cut{.thread = op.thread,
                    .span = {op.begin_ns, op.end_ns},
                    .change = "fused attention"};
  found_.alternatives = {{Edit{.cuts = {cut}}}};
  const Gain free = Size(context_, found_)->finding.gain;
  ASSERT_GT(free.high_ms, free.expected_ms);
  found_.bound_ns = free.expected_ms * 1e6;
  EXPECT_DOUBLE_EQ(Size(context_, found_)->finding.gain.high_ms, free.high_ms);
}

TEST_F(SizingTest, TakesTheRangeFromOutcomes) {
  const Gain threads = PredictGain(context_, {.threads = 8});
  EXPECT_GE(threads.pairs, 3);
  const Outcomes known = OutcomesOf({.threads = 8});
  EXPECT_LT(known.low, 0.8);  // one pair gained 0.71 of the prediction
  const double step_ms = StepNs({}) * 1e-6;
  EXPECT_NEAR(threads.low_ms, GainFor(known.low, threads.expected_ms, step_ms),
              0.5);
  EXPECT_NEAR(threads.high_ms,
              GainFor(known.high, threads.expected_ms, step_ms), 0.5);
  EXPECT_LT(threads.high_ms, step_ms);
  // Nobody has measured this change, alone or with others, so it is a hint.
  EXPECT_EQ(PredictGain(context_, {.dispatch_ns = 1}).pairs, 0);
  EXPECT_EQ(OutcomesOf({.threads = 8, .dispatch_ns = 1}).pairs, 0u);
  // For two changes together, the widest interval counts.
  const Outcomes both = OutcomesOf({.workers = 2, .threads = 8});
  EXPECT_LE(both.low, known.low);
  EXPECT_GE(both.high, known.high);
  // For merging ops into one op, the measured pairs apply if nothing else
  // changes.
  const Edit one_op{.cuts = {{.keep_ns = 1, .change = "fused attention"}}};
  EXPECT_GE(OutcomesOf(one_op).pairs, 3u);
  EXPECT_LT(OutcomesOf(one_op).low, 0.75);
  EXPECT_GE(OutcomesOf({.fused_update = 0.5}).pairs, 3u);
  EXPECT_EQ(OutcomesOf({.cuts = {{.keep_ns = 1}}}).pairs, 0u);
  EXPECT_EQ(OutcomesOf({.cuts = one_op.cuts, .scales = {{}}}).pairs, 0u);
  // Larger batches have gained more than predicted.
  EXPECT_GE(OutcomesOf({.threads = 8, .batch = 2}).pairs, 3u);
  EXPECT_GT(OutcomesOf({.batch = 2}).high, 1.5);
  EXPECT_GE(OutcomesOf({.drop_zero_grad = true}).pairs, 3u);
  EXPECT_EQ(OutcomesOf({.channels_last = true, .drop_zero_grad = true}).pairs,
            0u);
}

// Leaves each pair out in turn and predicts it from all others.
TEST(OutcomesTest, TheIntervalOfTheOthersHoldsNinetyPerCent) {
  const std::span<const KnownChange> known = KnownChanges();
  double inside = 0, all = 0;
  for (size_t at = 0; at < known.size(); ++at) {
    for (size_t i = 0; i < known[at].outcomes.size(); ++i) {
      std::vector<KnownChange> others(known.begin(), known.end());
      std::vector<double>& pairs = others[at].outcomes;
      const double outcome = pairs[i];
      pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(i));
      const Outcomes one = PredictPair(others, known[at].change);
      EXPECT_GE(one.pairs, 2u);
      inside += one.low <= outcome && outcome <= one.high;
      ++all;
    }
  }
  EXPECT_GE(inside, 0.9 * all);
}

// The same for bounds, of which nearly all changes gain the least at least.
TEST(OutcomesTest, TheLeastOfTheOtherBoundsHolds) {
  const std::span<const KnownBounds> known = BoundsOfRules();
  double above = 0, inside = 0, all = 0;
  for (size_t rule = 0; rule < known.size(); ++rule) {
    EXPECT_GE(known[rule].shares.size(), 3u);
    for (size_t i = 0;
         known[rule].shares.size() > 3 && i < known[rule].shares.size(); ++i) {
      std::vector<KnownBounds> others(known.begin(), known.end());
      std::vector<double>& shares = others[rule].shares;
      const double share = shares[i];
      shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(i));
      const double least = LeastOfBound(others[rule], others);
      above += share >= least;
      inside += share >= least && share <= 1.1;
      ++all;
    }
  }
  EXPECT_GE(above, 0.92 * all);
  EXPECT_GE(inside, 0.88 * all);
}

// The share at 5 % of all is the lowest one: 0.5 times the median of its rule.
TEST(OutcomesTest, TheLeastOfABoundFollowsTheMedianOfItsRule) {
  const std::vector<KnownBounds> all = {{"a", {0.4, 0.8, 0.9}},
                                        {"b", {0.5, 0.6, 0.7}}};
  EXPECT_NEAR(LeastOfBound(all[0], all), 0.4, 1e-9);
  EXPECT_NEAR(LeastOfBound(all[1], all), 0.3, 1e-9);
  EXPECT_EQ(OutcomesOfBound("no-such-rule").pairs, 0u);
  EXPECT_GT(OutcomesOfBound("unbatched-loop").low, 0.3);
}

TEST(OutcomesTest, AnOutcomeIsAPowerOfTheStepRatio) {
  EXPECT_NEAR(GainFor(1, 3, 10), 3, 1e-9);
  EXPECT_NEAR(GainFor(2, 3, 10), 10 * (1 - 0.7 * 0.7), 1e-9);
  EXPECT_NEAR(GainFor(2, 0.01, 10), 0.02, 1e-4);  // for small gains, a factor
  EXPECT_LT(GainFor(3, 9, 10), 10);  // no step takes less than 0 ms
  EXPECT_NEAR(GainFor(2, -1, 10), 10 * (1 - 1.21), 1e-9);
}

// Two changes of three pairs each, with variances of (ln 2)^2 and (ln 3)^2, and
// so of their mean for all. Three pairs' worth of that join the two degrees of
// freedom of either.
TEST(OutcomesTest, FewPairsHaveAWideInterval) {
  const std::vector<KnownChange> known = {{"a", {0.5, 1, 2}},
                                          {"b", {2.0 / 3, 2, 6}}};
  const auto half = [](double own) {
    const double two = std::pow(std::log(2.0), 2);
    const double three = std::pow(std::log(3.0), 2);
    const double variance = (3 * (two + three) / 2 + 2 * own) / 5;
    return 2.015 * std::sqrt(variance * (1 + 1.0 / 3));
  };
  const double narrow = half(std::pow(std::log(2.0), 2));
  const double wide = half(std::pow(std::log(3.0), 2));
  EXPECT_NEAR(PredictPair(known, "a").high, std::exp(narrow), 1e-6);
  EXPECT_NEAR(PredictPair(known, "a").low, std::exp(-narrow), 1e-6);
  EXPECT_NEAR(PredictPair(known, "b").high, 2 * std::exp(wide), 1e-6);
}

TEST(OutcomesTest, AnUnknownChangeOfOpsIsLikeAnyOther) {
  const std::vector<KnownChange> known = {
      {"a", {0.5, 1}}, {"b", {2, 4}}, {"workers", {9, 9, 9}}};
  EXPECT_EQ(PredictPair(known, "another").pairs, 4u);
  EXPECT_EQ(PredictPair(known, "a").pairs, 4u);
  EXPECT_EQ(PredictPair(known, "workers").pairs, 3u);
  EXPECT_EQ(PredictPair(known, "batch").pairs, 0u);
}

TEST(StudentTest, AgreesWithTablesAndTheNormalDistribution) {
  EXPECT_EQ(StudentT(1, Within::k95), 12.706);
  EXPECT_EQ(StudentT(12, Within::k90), 1.782);
  EXPECT_NEAR(StudentT(13, Within::k90), 1.771, 0.001);
  EXPECT_NEAR(StudentT(30, Within::k95), 2.042, 0.001);
  EXPECT_NEAR(StudentT(100'000, Within::k95), 1.960, 0.001);
}

TEST_F(SizingTest, TrustsABoundUnlessNoTrialGains) {
  found_.bound_ns = 3e6;
  found_.baseline_ms = 123;
  found_.if_bound.evidence = " At most.";
  found_.if_small = {.evidence = " In vain.", .fix_cpp = "another fix"};
  found_.trials = {Edit{.dispatch_ns = 1e9}, Edit{.threads = 8}};
  SizedFinding sized = *Size(context_, found_);
  EXPECT_EQ(sized.finding.gain_kind, GainKind::kBound);
  EXPECT_DOUBLE_EQ(sized.finding.gain.expected_ms, 3);
  EXPECT_EQ(sized.finding.gain.low_ms, 0);
  EXPECT_EQ(sized.finding.baseline_ms, 123);
  EXPECT_EQ(sized.finding.evidence, "Seen. At most.");
  EXPECT_EQ(sized.finding.collectives_frac, 0.9);

  found_.trials.pop_back();
  sized = *Size(context_, found_);
  EXPECT_EQ(sized.finding.gain_kind, GainKind::kNone);
  EXPECT_EQ(sized.finding.gain.expected_ms, 0);
  EXPECT_EQ(sized.finding.fix_cpp, "another fix");
}

// The bound counts GPU time only. The trial also counts what the host saves.
TEST(SizingOnAGpuTest, ABoundIsAtLeastWhatTheBestTrialGains) {
  const ProgramRun run = RunGpuLoop(ManyKernels(50, 4, 20), {.steps = 6});
  const AnalysisContext context(run.ranks[0]);
  ASSERT_TRUE(context.replay.check().valid) << context.replay.check().why_not;
  const auto gain_ns = [&](const Edit& edit) {
    return context.replay.StepNs({}) - context.replay.StepNs(edit);
  };
  const Edit good{.dispatch_ns = 10'000}, better{.dispatch_ns = 2'000};
  ASSERT_GT(gain_ns(better), 1.2 * gain_ns(good));
  Found found;
  found.bound_ns = gain_ns(good) / 2;
  found.trials = {good, better};
  const SizedFinding sized = *Size(context, found);
  EXPECT_EQ(sized.finding.gain_kind, GainKind::kBound);
  EXPECT_DOUBLE_EQ(sized.finding.gain.expected_ms, gain_ns(better) * 1e-6);
  EXPECT_TRUE(sized.edits.empty());
  // A larger bound is kept.
  found.bound_ns = 2 * gain_ns(better);
  EXPECT_GE(Size(context, found)->finding.gain.expected_ms,
            2 * gain_ns(better) * 1e-6);
}

TEST_F(SizingTest, WithoutReplayProposesTheFirstUnlessOnlyReplayCanChoose) {
  for (int threads : {2, 8}) AddThreads(threads);
  SizedFinding sized = SizeByBound(found_);
  EXPECT_EQ(sized.edits.size(), 2u);
  EXPECT_EQ(sized.finding.fix_cpp, "2 threads");
  EXPECT_EQ(sized.finding.gain_kind, GainKind::kNone);

  found_.needs_replay = true;
  found_.if_bound.fix_cpp = "some threads";
  sized = SizeByBound(found_);
  EXPECT_TRUE(sized.edits.empty());
  EXPECT_EQ(sized.finding.fix_cpp, "some threads");
}

TEST_F(SizingTest, DropsEditsThatChangeNothing) {
  found_.alternatives = {{Edit()}};
  found_.bound_ns = 1e6;
  const SizedFinding sized = *Size(context_, found_);
  EXPECT_TRUE(sized.edits.empty());
  EXPECT_EQ(sized.finding.gain_kind, GainKind::kBound);
}

}  // namespace
}  // namespace stepscope::sizing_test
