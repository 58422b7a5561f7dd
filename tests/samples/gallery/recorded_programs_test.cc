// Judges the programs by recordings that record.sh made, which gives the same
// result on every machine, because a report on a trace equals the report on the
// live run. Programs that need a GPU are judged if there is a recording: in
// tests/data/gpu, or one that `bash tests/gpu/slot.sh` has just made.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/read.h>

#include <filesystem>
#include <string>

#include "gpu/recorded_parts.h"
#include "judge.h"

namespace gallery::recorded_programs_test {
namespace {

using stepscope::Report;
using stepscope::Trace;

std::filesystem::path FileOf(const std::string& name, bool of_gpu) {
  const auto now = stepscope::FolderOfPart("gallery");
  const std::filesystem::path kept = of_gpu ? STEPSCOPE_TEST_DATA "/gpu/gallery"
                                            : STEPSCOPE_TEST_DATA "/gallery";
  // record.sh writes this form if zstd is not installed.
  const std::filesystem::path gzipped =
      now.value_or(kept) / (name + ".json.gz");
  return std::filesystem::exists(gzipped)
             ? gzipped
             : now.value_or(kept) / (name + ".json.zst");
}

Report ReportOn(const std::filesystem::path& file) {
  const absl::StatusOr<Trace> trace = stepscope::ReadTrace(file);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? stepscope::Analyze(*trace) : Report();
}

class RecordedProgramTest : public testing::TestWithParam<const Pattern*> {};

TEST_P(RecordedProgramTest, IsSeenAndItsFixToo) {
  const Pattern& pattern = *GetParam();
  const std::string name = Underscored(pattern.rule);
  const auto bad_file = FileOf(name, pattern.needs_gpu);
  if (pattern.needs_gpu && !std::filesystem::exists(bad_file)) {
    GTEST_SKIP() << "no GPU has recorded it: bash tests/gpu/slot.sh gallery";
  }
  const Report bad = ReportOn(bad_file);
  const Report fixed = ReportOn(FileOf(name + "_fixed", pattern.needs_gpu));
  EXPECT_EQ(bad.steps.count, pattern.active);
  EXPECT_EQ(fixed.steps.count, pattern.active);
  for (const std::string& wrong : Judge(pattern, ToldBy(bad), ToldBy(fixed))) {
    ADD_FAILURE() << wrong;
  }
}

std::string NameOfProgram(const testing::TestParamInfo<const Pattern*>& info) {
  return Underscored(info.param->rule);
}

INSTANTIATE_TEST_SUITE_P(OnACpu, RecordedProgramTest,
                         testing::ValuesIn(Patterns(false)), NameOfProgram);
INSTANTIATE_TEST_SUITE_P(OnAGpu, RecordedProgramTest,
                         testing::ValuesIn(Patterns(true)), NameOfProgram);

}  // namespace
}  // namespace gallery::recorded_programs_test
