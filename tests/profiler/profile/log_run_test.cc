#include "log_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace stepscope::log_run_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RunIdentity Alone(const std::string& start) {
  RunIdentity identity;
  identity.host = "node1";
  identity.start = start;
  identity.start_s = 1'000'000;
  return identity;
}

RunIdentity Rank(int rank, const std::string& start, int64_t start_s) {
  RunIdentity identity = Alone(start);
  identity.rank = rank;
  identity.world_size = 2;
  identity.job = "job";
  identity.start_s = start_s;
  return identity;
}

std::unique_ptr<LogRun> MustMake(const std::string& log_dir,
                                 const RunIdentity& identity) {
  auto log = LogRun::Make(log_dir, identity);
  EXPECT_TRUE(log.ok()) << log.status();
  if (!log.ok()) return nullptr;
  (*log)->set_patience(std::chrono::milliseconds(0));
  return *std::move(log);
}

void WriteInto(LogRun& log) {
  const auto paths = log.PathsOf(0);
  ASSERT_TRUE(paths.ok()) << paths.status();
  std::ofstream(paths->advice) << "{}";
}

class LogRunTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string log_dir_ = (folder_.path() / "runs/resnet").string();
};

TEST_F(LogRunTest, ARunIsNamedByItsStart) {
  const auto log = MustMake(log_dir_, Alone("2026_01_02_03_04_05"));
  EXPECT_EQ(log->Run(), "2026_01_02_03_04_05");
  EXPECT_EQ(log->disagreement(), "");
}

TEST_F(LogRunTest, ANameStandsBeforeTheStart) {
  RunIdentity named = Alone("2026_01_02_03_04_05");
  named.name = "resnet 18";
  const auto log = MustMake(log_dir_, named);
  EXPECT_EQ(log->Run(), "resnet-18_2026_01_02_03_04_05");
  const auto again = MustMake(log_dir_, named);
  EXPECT_EQ(again->Run(), log->Run() + "_" + std::to_string(getpid()));
}

TEST_F(LogRunTest, TheFoldersOfACycleExistBeforeItsFiles) {
  const auto log = MustMake(log_dir_, Alone("2026_01_02_03_04_05"));
  const auto paths = log->PathsOf(3);
  ASSERT_TRUE(paths.ok()) << paths.status();
  const LogPaths expected =
      PathsFor(log_dir_, "2026_01_02_03_04_05", "node1", 0, 3);
  EXPECT_EQ(paths->advice, expected.advice);
  for (const std::string& path :
       {paths->chrome_tb, paths->xspace, paths->chrome_kineto, paths->advice,
        paths->report}) {
    EXPECT_TRUE(fs::is_directory(fs::path(path).parent_path())) << path;
    EXPECT_THAT(path, StartsWith(log_dir_));
  }
}

TEST_F(LogRunTest, TwoRunsOfTheSameSecondNeverShareAFolder) {
  std::vector<std::string> runs;
  std::vector<std::unique_ptr<LogRun>> logs;
  for (int i = 0; i < 3; ++i) {
    logs.push_back(MustMake(log_dir_, Alone("2026_01_02_03_04_05")));
    runs.push_back(logs.back()->Run());
    EXPECT_THAT(runs.back(), StartsWith("2026_01_02_03_04_05"));
  }
  EXPECT_EQ(runs[1], runs[0] + "_" + std::to_string(getpid()));
  EXPECT_NE(runs[2], runs[1]);
}

TEST_F(LogRunTest, AnEarlierRunIsNeverReused) {
  { WriteInto(*MustMake(log_dir_, Alone("2026_01_02_03_04_05"))); }
  const auto again = MustMake(log_dir_, Alone("2026_01_02_03_04_05"));
  EXPECT_NE(again->Run(), "2026_01_02_03_04_05");
}

TEST_F(LogRunTest, ARunThatWroteNothingLeavesNothing) {
  MustMake(log_dir_, Alone("2026_01_02_03_04_05")).reset();
  EXPECT_FALSE(fs::exists(log_dir_));
}

TEST_F(LogRunTest, AFolderOfTheUserStays) {
  fs::create_directories(log_dir_);
  MustMake(log_dir_, Alone("2026_01_02_03_04_05")).reset();
  EXPECT_TRUE(fs::exists(log_dir_));
  EXPECT_TRUE(fs::is_empty(log_dir_));
}

TEST_F(LogRunTest, RanksOfAJobShareTheRunOfRankZero) {
  const auto zero = MustMake(log_dir_, Rank(0, "2026_01_02_03_04_05", 1000));
  const auto one = MustMake(log_dir_, Rank(1, "2026_01_02_03_04_07", 1002));
  EXPECT_EQ(one->Run(), zero->Run());
  EXPECT_EQ(one->disagreement(), "");
}

TEST_F(LogRunTest, RanksShareTheNameOfRankZeroToo) {
  RunIdentity first = Rank(0, "2026_01_02_03_04_05", 1000);
  RunIdentity second = Rank(1, "2026_01_02_03_04_07", 1002);
  first.name = "a b/\n";
  second.name = "other";
  const auto zero = MustMake(log_dir_, first);
  const auto one = MustMake(log_dir_, second);
  EXPECT_EQ(zero->Run(), "a-b--_2026_01_02_03_04_05");
  EXPECT_EQ(one->Run(), zero->Run());
  EXPECT_EQ(one->disagreement(), "");
}

TEST_F(LogRunTest, AnotherJobsRunIsNotTaken) {
  const auto zero = MustMake(log_dir_, Rank(0, "2026_01_02_03_04_05", 1000));
  RunIdentity other = Rank(1, "2026_01_02_03_04_07", 1002);
  other.job = "other";
  EXPECT_EQ(MustMake(log_dir_, other)->Run(), "2026_01_02_03_04_07");
}

TEST_F(LogRunTest, AJobOfTheSameNameFromLongBeforeIsNotJoined) {
  { WriteInto(*MustMake(log_dir_, Rank(0, "2026_01_02_03_00_00", 1000))); }
  const auto one = MustMake(log_dir_, Rank(1, "2026_01_02_04_00_00", 4600));
  EXPECT_EQ(one->Run(), "2026_01_02_04_00_00");
  EXPECT_THAT(one->disagreement(), HasSubstr("rank 1 found no folder of rank"));
}

TEST_F(LogRunTest, ARankThatWroteThereBeforeWaitsForANewRun) {
  const auto zero = MustMake(log_dir_, Rank(0, "2026_01_02_03_04_05", 1000));
  const auto one = MustMake(log_dir_, Rank(1, "2026_01_02_03_04_05", 1000));
  EXPECT_EQ(one->Run(), zero->Run());
  const auto again = MustMake(log_dir_, Rank(1, "2026_01_02_03_04_05", 1000));
  EXPECT_NE(again->Run(), zero->Run());
}

TEST_F(LogRunTest, AFileInTheWayIsNamed) {
  folder_.Write("runs", "not a folder");
  const auto log = LogRun::Make(log_dir_, Alone("2026_01_02_03_04_05"));
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(std::string(log.status().message()), HasSubstr(log_dir_));
  EXPECT_THAT(std::string(log.status().message()),
              HasSubstr("choose another log_dir"));
}

TEST_F(LogRunTest, AFolderWithoutPermissionIsNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  fs::create_directories(log_dir_);
  fs::permissions(log_dir_, fs::perms::owner_read);
  const auto log = LogRun::Make(log_dir_, Alone("2026_01_02_03_04_05"));
  EXPECT_TRUE(absl::IsPermissionDenied(log.status())) << log.status();
  fs::permissions(log_dir_, fs::perms::owner_all);
}

}  // namespace
}  // namespace stepscope::log_run_test
