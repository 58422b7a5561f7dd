#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::denormals_test {
namespace {

constexpr const char* kRule = "denormal-numbers";

struct Decay {
  std::string op = "aten::mul_";
  std::string tensor = "float[64,6400]";  // 1.6 MB, read and written
  int64_t us = 1'000;
  int64_t slower_us = 0;  // by how much every other call takes longer
  int calls = 4;          // per step
};

// Steps of 10 ms.
Report Of(const Decay& how) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    int64_t rest = 10'000;
    for (int i = 0; i < how.calls; ++i) {
      const int64_t us = how.us + (i % 2) * how.slower_us;
      text.Op("inputs=(" + how.tensor + ",Scalar=\"0.9\") " + how.op, us);
      rest -= us;
    }
    text.Op("aten::sort", rest);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DenormalNumbersTest, FiresWhereOpsInPlaceAreAlwaysSlow) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  // 3.28 MB take 0.16 ms at 20 GB/s.
  EXPECT_NEAR(finding->gain.expected_ms, 4 * (1 - 0.164), 0.01);
  EXPECT_NE(finding->evidence.find("aten::mul_ [64, 6400] takes 1.00 ms a "
                                   "call, and never less than 1.00 ms: that is "
                                   "3.28 GB/s"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("set_flush_denormal"), std::string::npos);
}

TEST(DenormalNumbersTest, AllowsTheRateOfASlowCore) {
  EXPECT_TRUE(IsClean(Of({.us = 810}), kRule));  // 4.04 GB/s
  EXPECT_FALSE(IsClean(Of({.us = 830}), kRule));
}

// Other threads on the same cores delay some calls more than others.
TEST(DenormalNumbersTest, NeedsCallsThatTakeEquallyLong) {
  EXPECT_FALSE(IsClean(Of({.slower_us = 490}), kRule));
  EXPECT_TRUE(IsClean(Of({.slower_us = 510}), kRule));
  EXPECT_TRUE(IsClean(Of({.calls = 1}), kRule));  // four in all
}

TEST(DenormalNumbersTest, LeavesWhatMayBeSlowForOtherReasons) {
  // New memory, no arithmetic, few elements, and other types.
  EXPECT_TRUE(IsClean(Of({.op = "aten::mul"}), kRule));
  EXPECT_TRUE(IsClean(Of({.op = "aten::zero_"}), kRule));
  EXPECT_TRUE(IsClean(Of({.tensor = "float[99,1000]"}), kRule));
  EXPECT_FALSE(IsClean(Of({.tensor = "float[100,1000]"}), kRule));
  EXPECT_TRUE(IsClean(Of({.tensor = "c10::BFloat16[64,6400]"}), kRule));
}

}  // namespace
}  // namespace stepscope::denormals_test
