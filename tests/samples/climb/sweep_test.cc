#include "climb/sweep.h"

#include <gtest/gtest.h>

#include <set>

#include "fake_bench.h"
#include "measure/grid.h"

namespace climb {
namespace {

TEST(GridTest, HasEveryCombinationOnce) {
  const std::vector<measure::Point> points =
      measure::Cross(Everything(), Of("--side 32"));
  std::set<std::string> texts;
  for (const measure::Point& point : points) {
    texts.insert(point.settings.Text());
    EXPECT_EQ(point.settings.Get("--side"), "32");
    for (size_t f = 0; f < Everything().size(); ++f) {
      EXPECT_EQ(measure::LevelOf(Everything()[f], point.settings),
                point.levels[f]);
    }
  }
  EXPECT_EQ(points.size(), 144u);
  EXPECT_EQ(texts.size(), 144u);
}

TEST(GridTest, OffDropsAFlagAndOnGivesItNoValue) {
  const measure::Factor factor{"--bf16", {"off", "on"}};
  EXPECT_EQ(measure::At(factor, 1, Of("--a 1")), Of("--a 1 --bf16"));
  EXPECT_EQ(measure::At(factor, 0, Of("--a 1 --bf16")), Of("--a 1"));
}

// fake_training.cc: two threads, no workers, the largest batch, NCHW.
TEST(SweepTest, FindsTheBestOfAll) {
  FakeBench fake;
  absl::StatusOr<std::vector<Swept>> swept =
      Sweep(fake.bench(), Everything(), {}, 8, 2);
  ASSERT_TRUE(swept.ok()) << swept.status().message();
  EXPECT_EQ(swept->size(), 144u);
  const measure::Settings& best = (*swept)[0].settings;
  EXPECT_EQ(best.Get("--threads"), "2");
  EXPECT_EQ(best.Get("--workers"), "0");
  EXPECT_EQ(best.Get("--batch"), "64");
  EXPECT_FALSE(best.Has("--channels-last"));
  EXPECT_NEAR((*swept)[0].median(), 64 / 0.138, 1);
  // The better a point, the more often it was run: 144 + 48 + 16, then the
  // best 6 twice.
  EXPECT_EQ((*swept)[0].samples_per_s.size(), 5u);
  EXPECT_EQ(swept->back().samples_per_s.size(), 1u);
  EXPECT_EQ(fake.runs(), 144 + 48 + 16 + 2 * 6);
}

TEST(SweepTest, FewPointsAreAllRunInEveryRound) {
  FakeBench fake;
  absl::StatusOr<std::vector<Swept>> swept =
      Sweep(fake.bench(), {{"--threads", {"1", "2"}}}, {}, 8, 3);
  ASSERT_EQ(swept->size(), 2u);
  EXPECT_EQ((*swept)[0].settings, Of("--threads 2"));
  EXPECT_EQ((*swept)[1].samples_per_s.size(), 3u);
}

}  // namespace
}  // namespace climb
