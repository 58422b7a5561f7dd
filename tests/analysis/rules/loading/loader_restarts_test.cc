#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::loader_restarts_test {
namespace {

constexpr const char* kRule = "loader-restarted";
constexpr const char* kSeed = "inputs=(long int[]) aten::random_";
constexpr const char* kNext =
    "kind=loader enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";

struct How {
  int restarts_every = 1;  // steps
  bool shuffles = true;
  bool has_loader = true;
  int steps = 6;
};

// Steps of about 13 ms: the loader shuffles 400,000 numbers in 1 ms, turns them
// into a list in 4 ms, frees the list in 2 ms, and takes a batch in 1 ms.
Report Of(const How& how) {
  CpuText text;
  for (int step = 0; step < how.steps; ++step) {
    const bool restarts = step % how.restarts_every == 0;
    if (restarts) text.Op(kSeed, 10);
    text.Begin();
    if (restarts && how.shuffles) {
      text.Op(kSeed, 10);
      text.Op("inputs=(Scalar=\"400000\") aten::randperm", 1'000);
      text.Op("inputs=(long int[400000]) aten::resolve_conj", 2, 3'998);
    }
    text.Op("inputs=(float[400000,32],) aten::index", 1'000);
    if (how.has_loader) text.EndRange(kNext);
    if (restarts && how.shuffles) text.Pass(2'000);  // frees the list
    text.Op("inputs=(float[448,32],float[384,32]) aten::linear", 5'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(LoaderRestartsTest, FindsAShuffleOfAllRowsForOneBatch) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 7.02, 0.01);  // without the batch
  EXPECT_NE(finding->evidence.find("started 1 time per step: each time it "
                                   "shuffles 400000 numbers"),
            std::string::npos)
      << finding->evidence;
  EXPECT_FALSE(Promises(report, "sync-data-loading"));
}

// With workers or a sequential sampler, the time until the first batch counts.
TEST(LoaderRestartsTest, CountsTheStartOfAnIteratorThatDoesNotShuffle) {
  const Report report = Of({.shuffles = false});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.01, 0.01);
}

TEST(LoaderRestartsTest, IgnoresEpochsOfManySteps) {
  EXPECT_TRUE(IsClean(Of({.restarts_every = 3}), kRule));
}

TEST(LoaderRestartsTest, NeedsMoreThanOneStep) {
  EXPECT_TRUE(IsClean(Of({.steps = 1}), kRule));
}

TEST(LoaderRestartsTest, IgnoresShufflesOutsideALoader) {
  EXPECT_TRUE(IsClean(Of({.has_loader = false}), kRule));
}

}  // namespace
}  // namespace stepscope::loader_restarts_test
