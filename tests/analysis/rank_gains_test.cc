#include "ranks/rank_gains.h"

#include <gtest/gtest.h>

#include <vector>

namespace stepscope::rank_gains_test {
namespace {

class RankGainsTest : public ::testing::Test {
 protected:
  // Rank `index` has the finding and alone gains `ms`.
  void AddFinding(size_t index, double ms) {
    findings_[index].gain = {ms, 0.9 * ms, 1.1 * ms};
    of_ranks_.push_back({index, nullptr, &findings_[index]});
  }
  JointGain Combined(const std::vector<double>& slacks, double unseen_ms = 0) {
    return CombineGains(of_ranks_, slacks, unseen_ms);
  }

 private:
  std::vector<Finding> findings_ = std::vector<Finding>(4);
  std::vector<RankFinding> of_ranks_;
};

TEST_F(RankGainsTest, TheRankThatGainsLeastLimitsTheRun) {
  AddFinding(0, 5);
  AddFinding(1, 3);
  const JointGain joint = Combined({0, 0});
  EXPECT_DOUBLE_EQ(joint.gain.expected_ms, 3);
  ASSERT_NE(joint.last, nullptr);
  EXPECT_EQ(joint.last->index, 1u);
}

TEST_F(RankGainsTest, AWaitingRankMayGainLess) {
  AddFinding(0, 5);
  AddFinding(1, 3);
  EXPECT_DOUBLE_EQ(Combined({0, 1}).gain.expected_ms, 4);
  EXPECT_DOUBLE_EQ(Combined({0, 9}).gain.expected_ms, 5);
}

TEST_F(RankGainsTest, OneSlowRankGainsWhatTheOthersWait) {
  AddFinding(2, 5);
  const JointGain joint = Combined({4, 4.5, 0, 4.2});
  EXPECT_DOUBLE_EQ(joint.gain.expected_ms, 4);
  EXPECT_EQ(joint.last, nullptr);
}

TEST_F(RankGainsTest, ARankThatNobodyWaitsForGainsNothing) {
  AddFinding(2, 5);
  EXPECT_DOUBLE_EQ(Combined({0, 0, 4, 0}).gain.expected_ms, 0);
  EXPECT_DOUBLE_EQ(Combined({0, 0, 4, 0}, 0.5).gain.expected_ms, 0.5);
}

TEST_F(RankGainsTest, TheRunGainsAtMostTheLargestGain) {
  AddFinding(0, 2);
  EXPECT_DOUBLE_EQ(Combined({3, 7}).gain.expected_ms, 2);
}

TEST(SlacksTest, AreTheWaitsBeyondTheLeast) {
  std::vector<RankDigest> ranks(3);
  RankComparison comparison;
  for (int r = 0; r < 3; ++r) {
    ranks[r].report.run.rank = 2 - r;  // files may come in any order
    comparison.rows.push_back({.rank = r});
    comparison.rows.back().waiting_ms = 1 + r;
  }
  EXPECT_EQ(SlacksMs(ranks, comparison), (std::vector<double>{2, 1, 0}));
  // Collectives that are exposed because of a wait count towards the slack.
  comparison.rows[1].exposed_ms = 1.5;
  comparison.rows[2].exposed_ms = 1.5;
  EXPECT_EQ(SlacksMs(ranks, comparison), (std::vector<double>{2, 1.5, 0}));
  comparison.why_not = "two traces of one rank";
  EXPECT_EQ(SlacksMs(ranks, comparison), (std::vector<double>{0, 0, 0}));
}

}  // namespace
}  // namespace stepscope::rank_gains_test
