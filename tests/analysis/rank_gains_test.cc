#include "ranks/rank_gains.h"

#include <gtest/gtest.h>

#include <vector>

namespace stepscope {
namespace {

class RankGainsTest : public ::testing::Test {
 protected:
  // Rank `index` wins that much by itself.
  void Told(size_t index, double ms) {
    findings_[index].gain = {ms, 0.9 * ms, 1.1 * ms};
    those_.push_back({index, nullptr, &findings_[index]});
  }
  WonTogether Win(const std::vector<double>& slacks, double unseen_ms = 0) {
    return WinTogether(those_, slacks, unseen_ms);
  }

 private:
  std::vector<Finding> findings_ = std::vector<Finding>(4);
  std::vector<OfRank> those_;
};

TEST_F(RankGainsTest, TheRankThatWinsLeastLimitsThem) {
  Told(0, 5);
  Told(1, 3);
  const WonTogether won = Win({0, 0});
  EXPECT_DOUBLE_EQ(won.gain.expected_ms, 3);
  ASSERT_NE(won.last, nullptr);
  EXPECT_EQ(won.last->index, 1u);
}

TEST_F(RankGainsTest, ARankThatWaitsMayWinLess) {
  Told(0, 5);
  Told(1, 3);
  EXPECT_DOUBLE_EQ(Win({0, 1}).gain.expected_ms, 4);
  EXPECT_DOUBLE_EQ(Win({0, 9}).gain.expected_ms, 5);
}

TEST_F(RankGainsTest, OneSlowRankWinsWhatTheOthersWait) {
  Told(2, 5);
  const WonTogether won = Win({4, 4.5, 0, 4.2});
  EXPECT_DOUBLE_EQ(won.gain.expected_ms, 4);
  EXPECT_EQ(won.last, nullptr);
}

TEST_F(RankGainsTest, ARankThatNobodyWaitsForWinsNothing) {
  Told(2, 5);
  EXPECT_DOUBLE_EQ(Win({0, 0, 4, 0}).gain.expected_ms, 0);
  EXPECT_DOUBLE_EQ(Win({0, 0, 4, 0}, 0.5).gain.expected_ms, 0.5);
}

TEST_F(RankGainsTest, NobodyWinsMoreThanTheOneThatWinsMost) {
  Told(0, 2);
  EXPECT_DOUBLE_EQ(Win({3, 7}).gain.expected_ms, 2);
}

TEST(SlacksTest, AreTheWaitsBeyondTheLeast) {
  std::vector<RankDigest> ranks(3);
  RankComparison comparison;
  for (int r = 0; r < 3; ++r) {
    ranks[r].report.run.rank = 2 - r;  // files in any order
    comparison.rows.push_back({.rank = r});
    comparison.rows.back().waiting_ms = 1 + r;
  }
  EXPECT_EQ(SlacksMs(ranks, comparison), (std::vector<double>{2, 1, 0}));
  // What it then cannot hide belongs to the wait.
  comparison.rows[1].exposed_ms = 1.5;
  comparison.rows[2].exposed_ms = 1.5;
  EXPECT_EQ(SlacksMs(ranks, comparison), (std::vector<double>{2, 1.5, 0}));
  comparison.why_not = "two of one rank";
  EXPECT_EQ(SlacksMs(ranks, comparison), (std::vector<double>{0, 0, 0}));
}

}  // namespace
}  // namespace stepscope
