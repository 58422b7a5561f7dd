#include <set>

#include "analysis/rules/rule_testing.h"
#include "support/trace_text.h"

namespace stepscope::compiled_test {
namespace {

constexpr int kSteps = 8;

std::string At(int step, int64_t begin_us, int64_t end_us) {
  const int64_t t = step * 10'000'000;
  return std::to_string(t + begin_us * 1000) + ".." +
         std::to_string(t + end_us * 1000) + " thread=0 ";
}

// Eight CPU steps of 10 ms. `more` returns further rows of a step.
template <typename More>
Report Of(More more) {
  std::string text;
  for (int step = 0; step < kSteps; ++step) {
    text += "step " + At(step, 0, 10'000) + "number=" + std::to_string(step) +
            "\n" + more(step);
  }
  return Analyze(TraceFromText(text));
}

Report CompilingIn(const std::set<int>& steps, int64_t us,
                   const std::string& name) {
  return Of([&](int step) {
    std::string rows =
        "op " + At(step, 6'000, 9'000) + "Torch-Compiled Region: 0/" +
        (steps.contains(step) ? std::to_string(step) : "0") + "\n";
    if (steps.contains(step)) {
      // One range is inside the other: the time counts once.
      rows += "range " + At(step, 100, 100 + us) + name + "\nrange " +
              At(step, 200, 50 + us) + "backend_compile (dynamo_timed)\n";
    }
    return rows;
  });
}
constexpr const char* kCompile = "entire_frame_compile (dynamo_timed)";

TEST(RecompilingTest, CountsWhatIsCompiledAfterTheFirstSteps) {
  const Report report = CompilingIn({0, 1, 4, 6}, 4'000, kCompile);
  const Finding* finding = Find(report, "recompiling");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(
      finding->evidence.find("compiled again, 2 times in 2 of the 6 steps"),
      std::string::npos)
      << finding->evidence;
  // 2 x 4 ms over the six steps after the first two.
  EXPECT_NE(finding->evidence.find("1.33 ms"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("Frame 0 runs in 4 variants"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(finding->gain.expected_ms, 8.0 / 6, 0.01);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
}

// Steps that compile take longer. That is not a stall for logging or saving.
TEST(RecompilingTest, TakesTheTimeOfSlowStepsForItself) {
  std::string text;
  int64_t begin = 0;
  for (int step = 0; step < kSteps; ++step) {
    const bool compiles = step == 3 || step == 6;
    const int64_t end = begin + (compiles ? 60'000'000 : 10'000'000);
    const std::string from = std::to_string(begin);
    text += "step " + from + ".." + std::to_string(end) +
            " thread=0 number=" + std::to_string(step) + "\n";
    if (compiles) {
      text += "range " + from + ".." + std::to_string(end - 10'000'000) +
              " thread=0 " + kCompile + "\n";
    }
    begin = end;
  }
  const Report report = Analyze(TraceFromText(text));
  EXPECT_NE(Find(report, "recompiling"), nullptr);
  EXPECT_TRUE(IsClean(report, "logging-checkpoint-stall"));
}

TEST(RecompilingTest, StaysSilentWhereOnlyTheFirstStepsCompile) {
  EXPECT_TRUE(IsClean(CompilingIn({0, 1}, 4'000, kCompile), "recompiling"));
}

TEST(RecompilingTest, FiresFromOnePerCentOfTheSteps) {
  // One of the last seven steps of 10 ms compiles: 0.7 ms are 1 %.
  EXPECT_TRUE(IsClean(CompilingIn({0, 4}, 690, kCompile), "recompiling"));
  EXPECT_FALSE(IsClean(CompilingIn({0, 4}, 710, kCompile), "recompiling"));
}

// The lookup runs on every call of compiled code.
TEST(RecompilingTest, IgnoresLookupsInTheCache) {
  const Report report = Of([](int step) {
    return "range " + At(step, 100, 4'000) + "TorchDynamo Cache Lookup\n" +
           "op " + At(step, 4'000, 9'000) + "Torch-Compiled Region: 0/0\n";
  });
  EXPECT_TRUE(IsClean(report, "recompiling"));
}

// Two compiled parts, with the op `between` from 4 to 6 ms.
Report Broken(const std::string& second, const std::string& between,
              int64_t end_us = 6'000) {
  return Of([&](int step) {
    return "op " + At(step, 0, 4'000) + "Torch-Compiled Region: 0/0\nop " +
           At(step, 4'500, 4'600) + between + "\nop " +
           At(step, end_us, 9'000) + "Torch-Compiled Region: " + second + "\n";
  });
}

TEST(GraphBreaksTest, NamesTheOpsBetweenTwoFrames) {
  const Report report = Broken("1/0", "aten::item");
  const Finding* finding = Find(report, "graph-breaks");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("cut into 2 frames, 2 calls per step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->where, "aten::item");
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
}

// Layers compiled one by one run the same frame repeatedly.
TEST(GraphBreaksTest, LeavesRepeatedLayersAlone) {
  EXPECT_TRUE(IsClean(Broken("0/0", "aten::add"), "graph-breaks"));
}

TEST(GraphBreaksTest, LeavesABackwardPassBetweenTwoPartsAlone) {
  EXPECT_TRUE(
      IsClean(Broken("1/0", "kind=backward AddBackward0"), "graph-breaks"));
}

TEST(GraphBreaksTest, StaysSilentBelowOnePerCentOfTheStep) {
  const auto broken = [](int64_t us) {
    return Of([us](int step) {
      return "op " + At(step, 0, 4'000) + "Torch-Compiled Region: 0/0\nop " +
             At(step, 4'010, 4'020) + "aten::item\nop " +
             At(step, 4'000 + us, 9'000) + "Torch-Compiled Region: 1/0\n";
    });
  };
  EXPECT_TRUE(IsClean(broken(90), "graph-breaks"));
  EXPECT_FALSE(IsClean(broken(310), "graph-breaks"));
}

}  // namespace
}  // namespace stepscope::compiled_test
