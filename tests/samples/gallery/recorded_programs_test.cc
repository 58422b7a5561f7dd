// The programs that show on a CPU, judged by recordings (record.sh makes them):
// the same on every machine. A report on a trace read again is the report on
// the run.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/read.h>

#include <string>

#include "judge.h"

namespace gallery {
namespace {

using stepscope::Report;
using stepscope::Trace;

Report ReportOn(const std::string& name) {
  const absl::StatusOr<Trace> trace = stepscope::ReadTrace(
      std::string(STEPSCOPE_TEST_DATA "/gallery/") + name + ".json.gz");
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? stepscope::Analyze(*trace) : Report();
}

class RecordedProgramTest : public testing::TestWithParam<const Pattern*> {};

TEST_P(RecordedProgramTest, IsSeenAndItsFixToo) {
  const Pattern& pattern = *GetParam();
  const std::string name = Underscored(pattern.rule);
  const Report bad = ReportOn(name);
  const Report fixed = ReportOn(name + "_fixed");
  EXPECT_EQ(bad.steps.count, pattern.active);
  EXPECT_EQ(fixed.steps.count, pattern.active);
  for (const std::string& wrong : Judge(pattern, ToldBy(bad), ToldBy(fixed))) {
    ADD_FAILURE() << wrong;
  }
}

INSTANTIATE_TEST_SUITE_P(OnACpu, RecordedProgramTest,
                         testing::ValuesIn(Patterns(false)),
                         [](const auto& info) {
                           return Underscored(info.param->rule);
                         });

}  // namespace
}  // namespace gallery
