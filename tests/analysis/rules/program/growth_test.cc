#include <algorithm>
#include <string>
#include <utility>

#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::growth_test {
namespace {

constexpr const char* kRule = "growing-prefix";

struct Loop {
  int iterations = 20;
  int first = 8;    // rows in the first iteration
  int more = 8;     // rows added in each iteration
  int uneven = -1;  // an iteration with one extra row
  bool trains = false;
  bool then_trains = false;  // then trains on all rows for 5 ms
};

// Each iteration takes 100 us of host code and 10 us per 8 rows.
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

TEST(GrowingPrefixTest, AdvisesToFeedOnlyNewPositions) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Iterations compute for 10 to 200 us; with a cache each takes as long as the
  // shortest, 10 us.
  EXPECT_NEAR(finding->gain.expected_ms, 0.01 * (210 - 20), 0.11);
  EXPECT_NE(finding->evidence.find("from 8 to 160"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("use_cache=True"), std::string::npos);
}

TEST(GrowingPrefixTest, CountsThePromptOnlyOnce) {
  const Report report = Of({.first = 800});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // The prompt takes 1 ms in each of 20 iterations, of which 10 us for 8 new
  // rows remain. The growth takes 1.9 ms, and so do the pauses, except for that
  // after the last iteration.
  EXPECT_NEAR(finding->gain.expected_ms, 20 * 0.99 + 1.9 + 1.9, 0.05);
}

TEST(GrowingPrefixTest, AdvisesToTrainOnAllPositionsAtOnce) {
  const Report report = Of({.trains = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // Each iteration also takes 100 us of host code and 100 us of backward. The
  // longest iteration remains.
  EXPECT_NEAR(finding->gain.expected_ms, 20 * 0.2 + 2.1 - 0.4, 0.11);
  EXPECT_NE(finding->fix_python.find("causal mask"), std::string::npos);
}

// Reinforcement learning trains on what the loop generated.
TEST(GrowingPrefixTest, IgnoresATrainingPassAfterTheLoop) {
  const Report report = Of({.first = 800, .then_trains = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // The rule counts the last iteration like the one before.
  EXPECT_NEAR(finding->gain.expected_ms, 20 * 0.99 + 1.9, 0.02);
  EXPECT_NE(finding->fix_python.find("use_cache=True"), std::string::npos);
}

TEST(GrowingPrefixTest, NeedsSteadyGrowth) {
  EXPECT_TRUE(IsClean(Of({.more = 0}), kRule));
  EXPECT_TRUE(IsClean(Of({.first = 800, .more = -8}), kRule));
  EXPECT_TRUE(IsClean(Of({.iterations = 9, .uneven = 4}), kRule));
  EXPECT_TRUE(IsClean(Of({.iterations = 4}), kRule));
  EXPECT_FALSE(IsClean(Of({.iterations = 5}), kRule));
}

struct Tokens {
  int steps = 24;
  int growing = 24;        // the first steps, in which the rows grow
  bool backward = false;   // each product has a node
  bool optimizer = false;  // each step ends with one
};

// One step per token, of 100 us of host code and 10 us per 8 rows.
Report Of(const Tokens& how) {
  CpuText text;
  for (int step = 0; step < how.steps; ++step) {
    const int tokens = std::min(step + 1, how.growing);
    const std::string sequence = "sequence=" + std::to_string(step);
    text.Pass(100);
    text.Op(sequence + " inputs=(float[64],float[" +
                std::to_string(8 * tokens) + ",64],float[64,64]) aten::addmm",
            10 * tokens);
    if (how.backward) {
      text.Nested("kind=backward " + sequence + " AddmmBackward0", 100,
                  "aten::mm", 90);
    }
    if (how.optimizer) {
      text.Begin();
      text.Op("aten::_fused_sgd_", 20);
      text.EndRange("kind=optimizer Optimizer.step#SGD.step");
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GrowingPrefixTest, SeesALoopWhoseIterationsAreSteps) {
  const Report report = Of(Tokens{});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(finding->evidence.starts_with("Steps are a loop of "))
      << finding->evidence;
  EXPECT_NE(finding->evidence.find(" to 192"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("use_cache=True"), std::string::npos);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Per step: the last one computes for 240 us, the mean one for about half.
  EXPECT_GT(finding->gain.expected_ms, 0.08);
  EXPECT_LT(finding->gain.expected_ms, 0.24);
}

TEST(GrowingPrefixTest, TakesGrowingStepsForNoLoopIfTheyTrain) {
  EXPECT_TRUE(IsClean(Of(Tokens{.optimizer = true}), kRule));
  EXPECT_TRUE(IsClean(Of(Tokens{.backward = true}), kRule));
}

TEST(GrowingPrefixTest, NeedsMostStepsToGrow) {
  EXPECT_TRUE(IsClean(Of(Tokens{.growing = 1}), kRule));
  EXPECT_TRUE(IsClean(Of(Tokens{.growing = 12}), kRule));
  EXPECT_FALSE(IsClean(Of(Tokens{.growing = 20}), kRule));
}

struct Joined {
  int times = 20;
  bool grows = true;    // else each op appends to the same tensor
  bool trains = false;  // the copies have autograd nodes
  bool reads = false;   // other ops read each result
  bool axis = true;     // the recording has the value of the axis
  // Between them, other tensors are joined, and their result is read.
  bool joins_others = false;
};

// A step of 10 ms, in which each aten::cat takes 10 us more than the one
// before.
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
                  ",512],float[1,512])" + (how.axis ? ",Scalar=\"0\"" : "") +
                  ") aten::cat",
              10 * i);
      if (how.reads) {
        text.Op(
            "inputs=(float[" + std::to_string(rows + 1) + ",512]) aten::relu",
            5);
      }
      if (how.joins_others) {
        text.Op(
            "inputs=(TensorList(float[64,8],float[64,1]),Scalar=\"1\") "
            "aten::cat",
            5);
        text.Op("inputs=(float[64,9],float[32,9],float[32]) aten::linear", 5);
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

TEST(GrowingPrefixTest, AdvisesToCopyOnce) {
  const Report report = Of(Joined{});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2.1 - 0.2, 0.01);
  EXPECT_NE(finding->evidence.find("from [1, 512] to [21, 512]"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.cat once"), std::string::npos);
}

// Files of torch before 2.1 have sizes, but no values of arguments.
TEST(GrowingPrefixTest, TellsTheAxisBySizes) {
  const Report report = Of(Joined{.axis = false});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2.1 - 0.2, 0.01);
}

TEST(GrowingPrefixTest, IgnoresADenseNetThatReadsEachResult) {
  EXPECT_TRUE(IsClean(Of(Joined{.trains = true, .reads = true}), kRule));
  EXPECT_FALSE(IsClean(Of(Joined{.trains = true}), kRule));
  // A decoder joins its inputs as well, in each iteration.
  EXPECT_FALSE(
      IsClean(Of(Joined{.trains = true, .joins_others = true}), kRule));
}

// Steps on a GPU with 20 appending calls of aten::cat, whose kernels take 10 us
// more each time. Nodes take `node_us` on the GPU and 200 us on the host.
Report OnGpu(double node_us) {
  ComputeText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::sort", "", {{"sort", 8'000}});
    const int begun = sequence;
    for (int i = 1; i <= 20; ++i, ++sequence) {
      text.Op("aten::cat",
              "(TensorList(float[" + std::to_string(i) +
                  ",512],float[1,512]),Scalar=\"0\")",
              {{"CatArrayBatchedCopy", 10.0 * i}}, 10,
              "sequence=" + std::to_string(sequence));
    }
    for (int i = sequence; i-- > begun;) {
      text.Begin();
      text.Pass(1);
      text.Op("aten::narrow", "", {{"copy", node_us}}, 198);
      text.End("CatBackward0", "", 200,
               "kind=backward sequence=" + std::to_string(i));
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GrowingPrefixTest, CountsWhatNodesTakeOnTheGpu) {
  for (const double node_us : {5.0, 50.0}) {
    const Report report = OnGpu(node_us);
    const Finding* finding = Find(report, kRule);
    ASSERT_NE(finding, nullptr);
    // The longest copy and its node remain.
    EXPECT_NEAR(finding->gain.expected_ms, 2.1 - 0.2 + 19 * node_us / 1'000,
                0.01);
  }
}

// For a cache of keys and values, each iteration should write only the new
// part.
TEST(GrowingPrefixTest, AdvisesToWriteACacheInParts) {
  const Report report = Of(Joined{.reads = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2.1 - 20 * 0.01, 0.01);
}

// Keys and values of two layers in the middle of generation, for `tokens`
// tokens per step. Each of the four copies takes 500 us.
Report Generating(int steps, int tokens) {
  CpuText text;
  int length = 1'000;
  for (int step = 0; step < steps; ++step) {
    for (int token = 0; token < tokens; ++token, ++length) {
      for (int layer = 0; layer < 2; ++layer) {
        for (int copy = 0; copy < 2; ++copy) {
          text.Op("inputs=(TensorList(float[" + std::to_string(length) +
                      ",64],float[1,64]),Scalar=\"0\") aten::cat",
                  500);
        }
        text.Op("inputs=(float[1,64],float[" + std::to_string(length + 1) +
                    ",64],float[" + std::to_string(length + 1) +
                    ",64]) aten::scaled_dot_product_attention",
                100);
      }
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GrowingPrefixTest, KnowsACacheThatIsCopiedForEachToken) {
  for (const auto& [steps, tokens] :
       {std::pair{4, 6}, std::pair{12, 1}, std::pair{4, 4}}) {
    const Report report = Generating(steps, tokens);
    const Finding* finding = Find(report, kRule);
    ASSERT_NE(finding, nullptr) << steps;
    // Calling an op takes 20 us, even for a short copy.
    EXPECT_NEAR(finding->gain.expected_ms, tokens * 4 * 0.48, 0.05) << steps;
  }
  EXPECT_TRUE(IsClean(Generating(4, 1), kRule));
}

// All results so far are copied after each batch. Two of the copies need new
// memory and make their steps slow, and the chain goes through these steps.
TEST(GrowingPrefixTest, FollowsCopiesThroughSlowSteps) {
  CpuText text;
  for (int step = 0; step < 12; ++step) {
    const bool slow = step == 5 || step == 8;
    const std::string rows = std::to_string(1000 * (step + 1));
    text.Op("inputs=(float[1000,64],float[64,64]) aten::mm", 5'000);
    text.Op("inputs=(TensorList(float[" + rows +
                ",64],float[1000,64]),Scalar=\"0\") aten::cat",
            slow ? 30'000 : 2'000);
    text.Op("inputs=(float[1000,64]) aten::relu", 100);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "growing-prefix");
  ASSERT_NE(finding, nullptr);
  // Of 80 ms in all, the longest copy remains.
  EXPECT_NEAR(finding->gain.expected_ms, 50.0 / 12, 0.3);
  EXPECT_NEAR(finding->baseline_ms, 7.1 + 56.0 / 12, 0.1);
  EXPECT_NE(finding->evidence.find("12 times in a row"), std::string::npos)
      << finding->evidence;
}

TEST(GrowingPrefixTest, StaysSilentOnFewOrEqualCopies) {
  EXPECT_TRUE(IsClean(Of(Joined{.grows = false}), kRule));
  EXPECT_TRUE(IsClean(Of(Joined{.times = 15}), kRule));
}

// Training steps of 10 ms, in which a sort of `sizes[i]` elements takes 2 ms.
Report Sorting(const std::vector<int>& sizes, bool trains = true,
               bool frozen_layer_grows = false) {
  ComputeText text;
  for (int size : sizes) {
    const std::string rows = frozen_layer_grows ? std::to_string(size) : "64";
    text.Op("aten::linear", "(float[" + rows + ",64],float[64,64])", {}, 7'900);
    text.Op("aten::sort", "(float[" + std::to_string(size) + "],=\"0\")", {},
            2'000);
    if (trains) {
      text.Begin();
      text.Pass(1);
      text.Op("aten::add_", "(float[64,64],float[64,64])", {}, 100);
      text.EndRange("Optimizer.step#SGD.step", "optimizer");
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GrowingHistoryTest, IsAtMostTheOpsOnTensorsThatGrow) {
  const Report report = Sorting({500, 600, 690, 800, 900});
  const Finding* finding = Find(report, "growing-history");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_NE(finding->evidence.find(
                "those of aten::sort grow from 500 to 900 elements"),
            std::string::npos)
      << finding->evidence;
}

TEST(GrowingHistoryTest, NeedsSteadyGrowthOfSomethingOlderInTraining) {
  for (const std::vector<int>& sizes : {std::vector<int>{500, 600, 700},
                                        {500, 600, 550, 800, 900},
                                        {500, 510, 520, 890, 900},
                                        {50, 150, 250, 350, 450},
                                        {500, 500, 500, 500, 500}}) {
    EXPECT_TRUE(IsClean(Sorting(sizes), "growing-history")) << sizes[1];
  }
  EXPECT_TRUE(
      IsClean(Sorting({500, 600, 700, 800, 900}, false), "growing-history"));
  // Longer and longer sequences.
  EXPECT_TRUE(IsClean(Sorting({500, 600, 700, 800, 900}, true, true),
                      "growing-history"));
}

}  // namespace
}  // namespace stepscope::growth_test
