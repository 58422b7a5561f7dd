// Runs `stepscope report` as a user does, and checks which page it makes of
// which paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope::report_command_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kTraceFolder = STEPSCOPE_TEST_DATA "/traces/";

class ReportCommandTest : public testing::Test {
 protected:
  Outcome Run(const std::string& words) {
    return RunShell(
        "cd '" + folder_.At("") + "' && '" STEPSCOPE_PROGRAM "' " + words,
        folder_);
  }

  TempFolder folder_;
  const std::string before_ = kTraceFolder + "h2d_a100_pageable.json.gz";
  const std::string after_ = kTraceFolder + "h2d_a100_pinned.json.gz";
};

constexpr const char* kReportBlock = "id=\"report\">{\"version\":2,";
constexpr const char* kComparisonBlock = "id=\"comparison\">{\"version\":2,";

TEST_F(ReportCommandTest, WritesAFileAndSaysSo) {
  const Outcome run = Run("report " + before_);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(StartsWith("wrote report.html ("), HasSubstr(" KB)")));
  EXPECT_THAT(ReadBytes(folder_.At("report.html")),
              AllOf(StartsWith("<!doctype html>"), HasSubstr(kReportBlock)));
}

TEST_F(ReportCommandTest, DashIsStandardOutput) {
  const Outcome run = Run("report -o - " + before_);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("<!doctype html>"));
  // The other command makes the same page.
  EXPECT_EQ(run.out, Run("analyze --format html " + before_).out);
}

TEST_F(ReportCommandTest, TwoTracesAreCompared) {
  const Outcome run = Run("report -o page.html " + before_ + " " + after_);
  EXPECT_EQ(run.status, 0) << run.err;
  const std::string page = ReadBytes(folder_.At("page.html"));
  EXPECT_THAT(page,
              AllOf(HasSubstr(kComparisonBlock), Not(HasSubstr(kReportBlock))));
  EXPECT_EQ(page, Run("compare --format html " + before_ + " " + after_).out);
}

TEST_F(ReportCommandTest, TwoRanksOfAJobAreOneReport) {
  const std::string ranks = kTraceFolder + "dlrm_v100_8ranks/";
  const Outcome run =
      Run("report -o - " + ranks + "rank1.json.gz " + ranks + "rank0.json.gz");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr(kReportBlock), HasSubstr("\"waits\":[")));
  // The page draws the lower rank.
  EXPECT_THAT(run.out, HasSubstr("id=\"details\">{\"rank\":0,"));
}

TEST_F(ReportCommandTest, OneRankOfSeveralIsChosen) {
  const Outcome run =
      Run("report -o - --rank 1 " + kTraceFolder + "dlrm_v100_8ranks");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("id=\"details\">{\"rank\":1,"));
  EXPECT_THAT(run.out, Not(HasSubstr("\"ranks\":{")));
}

TEST_F(ReportCommandTest, OneRankOfTwoFilesIsChosen) {
  const std::string ranks = kTraceFolder + "dlrm_v100_8ranks/";
  const Outcome run = Run("report -o - --rank 1 " + ranks + "rank0.json.gz " +
                          ranks + "rank1.json.gz");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("id=\"details\">{\"rank\":1,"));
}

TEST_F(ReportCommandTest, AComparisonTakesNeitherRunNorCycle) {
  for (const char* option : {"--run x ", "--cycle 1 "}) {
    const Outcome run =
        Run("report " + std::string(option) + before_ + " " + after_);
    EXPECT_EQ(run.status, 2) << option;
    EXPECT_THAT(run.err, HasSubstr("neither --run nor --cycle")) << option;
  }
}

TEST_F(ReportCommandTest, RefusesTracesThatAreNotOneJob) {
  const Outcome run = Run("report " + before_ + " " + after_ + " " +
                          kTraceFolder + "toy_mi250.json.gz");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("one page cannot show traces that are not the "
                                 "ranks of one job ("));
  EXPECT_THAT(run.err, HasSubstr("make a page of each"));
}

TEST_F(ReportCommandTest, SaysWhatIsMissing) {
  EXPECT_EQ(Run("report").status, 2);
  EXPECT_EQ(Run("report --formt x").status, 2);
  EXPECT_EQ(Run("report nothing.json").status, 1);
  const Outcome help = Run("report --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, StartsWith("Usage: stepscope report"));
}

}  // namespace
}  // namespace stepscope::report_command_test
