// Runs the CPU programs now and judges their reports, which needs a quiet
// machine. CI judges recordings of them instead (recorded_programs_test.cc).
#include "live_programs.h"

#include <gtest/gtest.h>

namespace gallery::live_programs_test {
namespace {

class LiveProgramTest : public testing::TestWithParam<const Pattern*> {};

TEST_P(LiveProgramTest, IsSeenAndItsFixToo) { ExpectRight(*GetParam(), ""); }

INSTANTIATE_TEST_SUITE_P(OnACpu, LiveProgramTest,
                         testing::ValuesIn(Patterns(false)),
                         [](const auto& info) {
                           return Underscored(info.param->rule);
                         });

}  // namespace
}  // namespace gallery::live_programs_test
