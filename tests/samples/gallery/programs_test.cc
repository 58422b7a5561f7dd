// Runs the programs. The CPU programs must train and report, whatever the
// report says. The programs that need a GPU are also judged.
#include <gtest/gtest.h>

#include "device.h"
#include "live_programs.h"

namespace gallery::programs_test {
namespace {

std::string NameOf(const testing::TestParamInfo<const Pattern*>& info) {
  return Underscored(info.param->rule);
}

class ProgramTest : public testing::TestWithParam<const Pattern*> {};

TEST_P(ProgramTest, TrainsAndReports) {
  const Pattern& pattern = *GetParam();
  EXPECT_EQ(RunOnce(pattern, "").steps, pattern.active);
  EXPECT_EQ(RunOnce(pattern, "--fixed").steps, pattern.active);
}

INSTANTIATE_TEST_SUITE_P(OnACpu, ProgramTest,
                         testing::ValuesIn(Patterns(false)), NameOf);

class GpuProgramTest : public testing::TestWithParam<const Pattern*> {};

TEST_P(GpuProgramTest, IsSeenAndItsFixToo) {
  if (const std::string why = OpenGpu(); !why.empty()) GTEST_SKIP() << why;
  ExpectRight(*GetParam(), "--device cuda");
}

INSTANTIATE_TEST_SUITE_P(OnAGpu, GpuProgramTest,
                         testing::ValuesIn(Patterns(true)), NameOf);

}  // namespace
}  // namespace gallery::programs_test
