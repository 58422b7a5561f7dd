#include "cube/effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <string>

namespace cube {
namespace {

using ::testing::IsEmpty;

const std::vector<measure::Factor> kThree = {
    {"--a", {"0", "1"}}, {"--b", {"off", "on"}}, {"--c", {"0", "1", "2"}}};

// What a point's rate is, given the levels of its factors.
using Truth = std::function<double(const std::vector<size_t>&)>;

// `noise`: standard deviation of the logarithm of a run's rate. Rounds drift.
Cube Simulate(const Truth& truth, double noise, int rounds, int seed = 1,
              const std::vector<measure::Factor>& factors = kThree) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::normal_distribution<double> normal(0, noise);
  Cube cube{factors, measure::Cross(factors, {}), {}};
  for (const measure::Point& point : cube.points) {
    cube.rates.emplace_back();
    for (int round = 0; round < rounds; ++round) {
      cube.rates.back().push_back(truth(point.levels) * (1 + 0.1 * round) *
                                  std::exp(normal(random)));
    }
  }
  return cube;
}

// Effects that only multiply.
double Product(const std::vector<size_t>& levels) {
  return 100 * (levels[0] == 1 ? 1.5 : 1) * (levels[1] == 1 ? 0.8 : 1) *
         (levels[2] == 2 ? 1.2 : 1);
}

const Pair* Find(const std::vector<Pair>& pairs, size_t f, size_t l, size_t g,
                 size_t m) {
  for (const Pair& pair : pairs) {
    if (pair.first.factor == f && pair.first.level == l &&
        pair.second.factor == g && pair.second.level == m) {
      return &pair;
    }
  }
  return nullptr;
}

TEST(EffectsTest, LieWithinTheirIntervalsAsOftenAsThoseSay) {
  const double truth[] = {1.5, 0.8, 1, 1.2};
  int held = 0, looked = 0;
  for (int seed = 1; seed <= 40; ++seed) {
    const std::vector<Effect> effects =
        Effects(Simulate(Product, 0.03, 5, seed));
    ASSERT_EQ(effects.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      for (const Ratio& ratio :
           {effects[i].on_average, effects[i].at_baseline}) {
        EXPECT_NEAR(ratio.value, truth[i], 0.12);
        held += ratio.interval.Holds(truth[i]);
        ++looked;
      }
    }
  }
  EXPECT_GT(held, 0.90 * looked);
  EXPECT_LT(held, 0.99 * looked);
}

TEST(EffectsTest, AnAverageIsKnownBetterThanASinglePlace) {
  for (const Effect& effect : Effects(Simulate(Product, 0.03, 5))) {
    EXPECT_LT(
        effect.on_average.interval.high / effect.on_average.interval.low,
        effect.at_baseline.interval.high / effect.at_baseline.interval.low);
  }
}

TEST(PairsTest, ProductsAreNotNamed) {
  int named = 0;
  constexpr int kCubes = 40;
  for (int seed = 1; seed <= kCubes; ++seed) {
    for (const Pair& pair : Pairs(Simulate(Product, 0.03, 4, seed))) {
      if (pair.together != Together::kAsExpected) {
        ++named;
        break;
      }
    }
  }
  // One cube in 20 may name a pair by chance.
  EXPECT_LE(named, 6);
}

TEST(PairsTest, EveryPairOfChangesIsLookedAtOnce) {
  EXPECT_EQ(Pairs(Simulate(Product, 0.01, 3)).size(), 1u + 2 + 2);
}

TEST(PairsTest, WhatHelpsOnlyTogetherIsNamed) {
  const std::vector<Pair> pairs = Pairs(Simulate(
      [](const std::vector<size_t>& levels) {
        return levels[0] == 1 && levels[1] == 1 ? 130.0 : 100.0;
      },
      0.02, 5));
  const Pair* pair = Find(pairs, 0, 1, 1, 1);
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(pair, &pairs[0]);
  EXPECT_EQ(pair->together, Together::kHelpOnlyTogether);
  EXPECT_NEAR(pair->both.value, 1.3, 0.05);
  EXPECT_TRUE(pair->beyond_product.interval.Holds(1.3));
  EXPECT_EQ(Find(pairs, 0, 1, 2, 1)->together, Together::kAsExpected);
}

// Two ways to use the same idle core: one is enough.
TEST(PairsTest, WhatCancelsIsNamed) {
  const std::vector<Pair> pairs = Pairs(Simulate(
      [](const std::vector<size_t>& levels) {
        if (levels[0] == 1 && levels[1] == 1) return 135.0;
        return levels[0] == 1 ? 140.0 : levels[1] == 1 ? 130.0 : 100.0;
      },
      0.02, 5));
  EXPECT_EQ(Find(pairs, 0, 1, 1, 1)->together, Together::kCancel);
}

TEST(PairsTest, MoreAndLessThanTheProductAreToldApart) {
  const auto joint = [](double both) {
    return Pairs(Simulate(
        [both](const std::vector<size_t>& levels) {
          if (levels[0] == 1 && levels[1] == 1) return both;
          return levels[0] == 1 || levels[1] == 1 ? 120.0 : 100.0;
        },
        0.01, 5));
  };
  EXPECT_EQ(Find(joint(170), 0, 1, 1, 1)->together, Together::kHelpEachOther);
  EXPECT_EQ(Find(joint(144), 0, 1, 1, 1)->together, Together::kAsExpected);
  EXPECT_EQ(Find(joint(130), 0, 1, 1, 1)->together, Together::kLess);
}

// What --a and --b make of 100 samples/s alone and together.
struct Joint {
  double a, b, both;
  double noise = 0.01;
};
Together Verdict(const Joint& joint) {
  const std::vector<Pair> pairs = Pairs(Simulate(
      [joint](const std::vector<size_t>& levels) {
        if (levels[0] == 1 && levels[1] == 1) return joint.both;
        return levels[0] == 1 ? joint.a : levels[1] == 1 ? joint.b : 100.0;
      },
      joint.noise, 5));
  return Find(pairs, 0, 1, 1, 1)->together;
}

// The same time is lost once, not twice.
TEST(PairsTest, CostsThatOverlapAreNoHelp) {
  EXPECT_EQ(Verdict({80, 80, 80}), Together::kCostLess);
  EXPECT_EQ(Verdict({80, 90, 78}), Together::kCostLess);
  EXPECT_EQ(Verdict({80, 80, 64}), Together::kAsExpected);
}

TEST(PairsTest, CostsThatGrowTogetherAreNamed) {
  EXPECT_EQ(Verdict({80, 80, 50}), Together::kCostMore);
  EXPECT_EQ(Verdict({100, 100, 75}), Together::kCostOnlyTogether);
  // Each helps, and both together cost.
  EXPECT_EQ(Verdict({120, 120, 90}), Together::kCostOnlyTogether);
}

TEST(PairsTest, WhereOneHelpsAndOneCostsNothingElseIsSaid) {
  EXPECT_EQ(Verdict({150, 80, 140}), Together::kMixedMore);
  EXPECT_EQ(Verdict({150, 80, 160}), Together::kMixedMore);
  EXPECT_EQ(Verdict({150, 80, 120}), Together::kAsExpected);
  // No more than the better one, but that is due to the other's cost.
  EXPECT_EQ(Verdict({150, 80, 100}), Together::kMixedLess);
  EXPECT_EQ(Verdict({80, 150, 70}), Together::kMixedLess);
}

TEST(PairsTest, BothMayCostAloneAndHelpTogether) {
  EXPECT_EQ(Verdict({90, 90, 120}), Together::kHelpOnlyTogether);
}

// By their medians both would cost; the noise leaves it open.
TEST(PairsTest, WhatIsWithinTheNoiseIsCalledNeitherHelpNorCost) {
  EXPECT_EQ(Verdict({99.9, 80, 95}), Together::kMore);
  EXPECT_EQ(Verdict({99.9, 80, 70}), Together::kLess);
  EXPECT_EQ(Verdict({140, 100.1, 130}), Together::kLess);
  EXPECT_EQ(Verdict({140, 100.1, 160}), Together::kHelpEachOther);
}

TEST(TogetherTextTest, NoTwoVerdictsReadTheSame) {
  std::set<std::string> texts;
  for (int i = 0; i <= static_cast<int>(Together::kLess); ++i) {
    EXPECT_TRUE(texts.insert(TogetherText(static_cast<Together>(i))).second);
  }
  EXPECT_FALSE(texts.contains(""));
}

TEST(PairsTest, ThePairOfTheSameValuesIsFoundWhateverTheOrder) {
  const std::vector<Pair> pairs = Pairs(Simulate(Product, 0.05, 3, 1));
  const std::vector<Pair> others = Pairs(Simulate(Product, 0.05, 3, 2));
  for (const Pair& pair : pairs) {
    const Pair* same = SamePair(others, pair);
    ASSERT_NE(same, nullptr);
    EXPECT_EQ(same->first.factor, pair.first.factor);
    EXPECT_EQ(same->first.level, pair.first.level);
    EXPECT_EQ(same->second.factor, pair.second.factor);
    EXPECT_EQ(same->second.level, pair.second.level);
  }
  EXPECT_EQ(SamePair({}, pairs[0]), nullptr);
}

TEST(PairsTest, NoiseThatIsLargerThanTheEffectNamesNothing) {
  const std::vector<Pair> pairs = Pairs(Simulate(
      [](const std::vector<size_t>& levels) {
        return levels[0] == 1 && levels[1] == 1 ? 104.0 : 100.0;
      },
      0.1, 3));
  for (const Pair& pair : pairs) {
    EXPECT_EQ(pair.together, Together::kAsExpected);
  }
}

TEST(PairsTest, CombinationsThatAreNotThereAreLeftOutOfTheComparison) {
  Cube cube = Simulate(Product, 0.01, 4);
  // The baseline of --c 2 with --b is gone.
  for (size_t p = 0; p < cube.points.size(); ++p) {
    if (cube.points[p].levels == std::vector<size_t>{0, 1, 2}) {
      cube.points.erase(cube.points.begin() + static_cast<std::ptrdiff_t>(p));
      cube.rates.erase(cube.rates.begin() + static_cast<std::ptrdiff_t>(p));
      break;
    }
  }
  const std::vector<Pair> pairs = Pairs(cube);
  EXPECT_NEAR(Find(pairs, 1, 1, 2, 2)->both.value, 0.8 * 1.2, 0.03);
  EXPECT_NEAR(Effects(cube)[3].on_average.value, 1.2, 0.03);
}

TEST(PairsTest, OnePointHasNone) {
  Cube cube{kThree, {measure::Cross(kThree, {})[0]}, {{100, 101}}};
  EXPECT_THAT(Pairs(cube), IsEmpty());
  EXPECT_THAT(Effects(cube), IsEmpty());
}

TEST(LevelTextTest, ReadsLikeACommand) {
  EXPECT_EQ(LevelText(kThree[0], 1), "--a 1");
  EXPECT_EQ(LevelText(kThree[1], 1), "--b");
  EXPECT_EQ(LevelText(kThree[1], 0), "without --b");
}

}  // namespace
}  // namespace cube
