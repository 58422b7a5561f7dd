#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::growth_test {
namespace {

constexpr const char* kRule = "growing-prefix";

struct Loop {
  int iterations = 20;
  int first = 8;    // rows
  int more = 8;     // rows, in each iteration
  int uneven = -1;  // an iteration with one row more
  bool trains = false;
  bool then_trains = false;  // on all rows of the last iteration, for 5 ms
};

// Each iteration takes 100 us of calling, and 10 us for each 8 rows.
Report Of(const Loop& how) {
  CpuText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    const int begun = sequence;
    for (int i = 0; i < how.iterations; ++i, ++sequence) {
      const int rows = how.first + how.more * i + (i == how.uneven);
      text.Pass(100);
      text.Op("sequence=" + std::to_string(sequence) +
                  " inputs=(float[64],float[" + std::to_string(rows) +
                  ",64],float[64,64]) aten::addmm",
              10 * (rows / 8));
    }
    for (int i = sequence; how.trains && i-- > begun;) {
      text.Nested(
          "kind=backward sequence=" + std::to_string(i) + " AddmmBackward0",
          100, "aten::mm", 90);
    }
    if (how.then_trains) {
      const int rows = how.first + how.more * (how.iterations - 1);
      text.Op("sequence=" + std::to_string(sequence) +
                  " inputs=(float[64],float[" + std::to_string(rows) +
                  ",64],float[64,64]) aten::addmm",
              2'000);
      text.Nested("kind=backward sequence=" + std::to_string(sequence++) +
                      " AddmmBackward0",
                  3'000, "aten::mm", 2'990);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GrowingPrefixTest, FeedsOnlyNewPositions) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // 10 to 200 us; the shortest iteration computes 10 us, for new rows only.
  EXPECT_NEAR(finding->gain.expected_ms, 0.01 * (210 - 20), 0.11);
  EXPECT_NE(finding->evidence.find("from 8 to 160"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("use_cache=True"), std::string::npos);
}

TEST(GrowingPrefixTest, APromptIsNoNewPosition) {
  const Report report = Of({.first = 800});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // 20 times 1 ms, 1.9 ms of growth, and the pauses but the last; the 10 us for
  // 8 rows remain of each, as the last iteration has no pause behind it.
  EXPECT_NEAR(finding->gain.expected_ms, 20 * 0.99 + 1.9 + 1.9, 0.05);
}

TEST(GrowingPrefixTest, TrainsOnAllPositionsAtOnce) {
  const Report report = Of({.trains = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // Each also takes 100 us of calling and 100 us of backward; the longest
  // remains.
  EXPECT_NEAR(finding->gain.expected_ms, 20 * 0.2 + 2.1 - 0.4, 0.11);
  EXPECT_NE(finding->fix_python.find("causal mask"), std::string::npos);
}

// As with reinforcement learning: what was generated is trained with.
TEST(GrowingPrefixTest, ATrainingPassBehindTheLoopIsNotOfIt) {
  const Report report = Of({.first = 800, .then_trains = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // The last iteration counts as much as the one before.
  EXPECT_NEAR(finding->gain.expected_ms, 20 * 0.99 + 1.9, 0.02);
  EXPECT_NE(finding->fix_python.find("use_cache=True"), std::string::npos);
}

TEST(GrowingPrefixTest, OnlySteadyGrowthIsALoop) {
  EXPECT_TRUE(IsClean(Of({.more = 0}), kRule));
  EXPECT_TRUE(IsClean(Of({.first = 800, .more = -8}), kRule));
  EXPECT_TRUE(IsClean(Of({.iterations = 9, .uneven = 4}), kRule));
  EXPECT_TRUE(IsClean(Of({.iterations = 4}), kRule));
  EXPECT_FALSE(IsClean(Of({.iterations = 5}), kRule));
}

struct Joined {
  int times = 20;
  bool grows = true;    // else it adds to the same tensor
  bool trains = false;  // the copies have autograd nodes
  bool reads = false;   // other ops read what each makes
};

// Each aten::cat of a step of 10 ms copies for 10 us more than the one before.
Report Of(const Joined& how) {
  CpuText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::sort", 8'000);
    const int begun = sequence;
    for (int i = 1; i <= how.times; ++i, ++sequence) {
      const int rows = how.grows ? i : 1;
      text.Op((how.trains ? "sequence=" + std::to_string(sequence) + " " : "") +
                  "inputs=(TensorList(float[" + std::to_string(rows) +
                  ",512],float[1,512]),Scalar=\"0\") aten::cat",
              10 * i);
      if (how.reads) {
        text.Op(
            "inputs=(float[" + std::to_string(rows + 1) + ",512]) aten::relu",
            5);
      }
    }
    for (int i = sequence; how.trains && i-- > begun;) {
      text.Nested(
          "kind=backward sequence=" + std::to_string(i) + " CatBackward0", 10,
          "aten::narrow", 5);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GrowingPrefixTest, CopiesOnce) {
  const Report report = Of(Joined{});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2.1 - 0.2, 0.01);
  EXPECT_NE(finding->evidence.find("from [1, 512] to [21, 512]"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.cat once"), std::string::npos);
}

TEST(GrowingPrefixTest, ADenseNetNeedsAllOfThem) {
  EXPECT_TRUE(IsClean(Of(Joined{.trains = true, .reads = true}), kRule));
  EXPECT_FALSE(IsClean(Of(Joined{.trains = true}), kRule));
}

// A cache of keys and values: the new part is written in each iteration.
TEST(GrowingPrefixTest, ACacheIsWrittenInParts) {
  const Report report = Of(Joined{.reads = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2.1 - 20 * 0.01, 0.01);
}

TEST(GrowingPrefixTest, FewOrEqualCopiesAreSilent) {
  EXPECT_TRUE(IsClean(Of(Joined{.grows = false}), kRule));
  EXPECT_TRUE(IsClean(Of(Joined{.times = 15}), kRule));
}

}  // namespace
}  // namespace stepscope::growth_test
