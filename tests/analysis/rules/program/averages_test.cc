#include "analysis/rules/rule_testing.h"
#include "support/engine_text.h"

namespace stepscope::averages_test {
namespace {

constexpr const char* kRule = "frozen-average";

// A trained weight, and a table of size `table` that is not trained. The
// program averages both: each op takes 1 ms.
struct How {
  std::string table = "float[4000,200]";
  bool lerp = false;
  bool trains = false;   // the table is trained, too
  bool made = false;     // an op makes a tensor of the table's size
  bool averages = true;  // the program averages the trained weight
};

Report Of(const How& how) {
  EngineText text;
  const std::string weight = "float[64,200]";
  const auto average = [&](const std::string& one) {
    const std::string both = "(" + one + "," + one + ")";
    if (how.lerp) {
      text.Op("aten::lerp_", both, 1000);
    } else {
      text.Op("aten::mul_", "(" + one + ",Scalar=\"0.999\")", 1000);
      text.Op("aten::add_", both, 1000);
    }
  };
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::linear", "(float[32,200]," + weight + ")", 1000, 2 * step);
    if (how.made) {
      text.Op("aten::mm", "(float[4000,32],float[32,200])", 1000);
    }
    text.Node(2 * step, 1000);
    text.Keep(weight);
    if (how.trains) text.Keep(how.table);
    text.Update();
    if (how.averages) average(weight);
    average(how.table);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(AveragesTest, FindsTheAverageOfAFrozenTable) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_NE(finding->evidence.find("1 tensor of it, up to [4000, 200], has the "
                                   "size of no weight"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(Find(Of({.lerp = true}), kRule)->gain.expected_ms, 1, 0.01);
}

TEST(AveragesTest, AllowsAveragingTrainedWeights) {
  EXPECT_TRUE(IsClean(Of({.trains = true}), kRule));
}

TEST(AveragesTest, IgnoresAveragesOfOtherTensors) {
  // The codes of a VQ-VAE, statistics, and a program in which no weight is
  // averaged.
  EXPECT_TRUE(IsClean(Of({.made = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.table = "float[200]"}), kRule));
  EXPECT_TRUE(IsClean(Of({.averages = false}), kRule));
}

}  // namespace
}  // namespace stepscope::averages_test
