#include "measure/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "samples/temporary_folder.h"

namespace measure {
namespace {

using ::testing::HasSubstr;

class JournalTest : public ::testing::Test {
 protected:
  resnet::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/runs.jsonl";
};

TEST_F(JournalTest, RemembersRunsAcrossPrograms) {
  const std::string key = "odd \"key\"\\ with\nall";
  {
    absl::StatusOr<Journal> journal = Journal::Open(path_);
    ASSERT_TRUE(journal.ok()) << journal.status().message();
    EXPECT_EQ(journal->Find(key), nullptr);
    ASSERT_TRUE(journal->Add(key, {{1, 2.25}, 1, 8}).ok());
    ASSERT_TRUE(journal->Add("b", {{3}, 0, 1}).ok());
  }
  absl::StatusOr<Journal> journal = Journal::Open(path_);
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  EXPECT_EQ(journal->size(), 2u);
  const RunTimes* run = journal->Find(key);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->step_ms, (std::vector<double>{1, 2.25}));
  EXPECT_EQ(run->warm_steps, 1);
  EXPECT_EQ(run->batch, 8);
}

TEST_F(JournalTest, AHalfWrittenLastLineIsTakenAway) {
  ASSERT_TRUE(Journal::Open(path_)->Add("a", {{1}, 0, 1}).ok());
  std::ofstream(path_, std::ios::app) << R"({"key": "b", "run": {"ste)";
  absl::StatusOr<Journal> journal = Journal::Open(path_);
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  EXPECT_EQ(journal->size(), 1u);
  ASSERT_TRUE(journal->Add("c", {{1}, 0, 1}).ok());
  EXPECT_EQ(Journal::Open(path_)->size(), 2u);
}

TEST_F(JournalTest, AnEmptyFileIsABeginning) {
  std::ofstream(path_).close();
  absl::StatusOr<Journal> journal = Journal::Open(path_);
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  EXPECT_EQ(journal->size(), 0u);
}

TEST_F(JournalTest, AnotherFileIsLeftAloneAndNamed) {
  std::ofstream(path_) << "{\"key\": \"a\", \"run\": 1}\nmore\n";
  absl::StatusOr<Journal> journal = Journal::Open(path_);
  EXPECT_EQ(journal.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(journal.status().message()),
              HasSubstr("runs.jsonl, line 1"));
}

TEST_F(JournalTest, WithoutAFileItRemembersForItself) {
  absl::StatusOr<Journal> journal = Journal::Open("");
  ASSERT_TRUE(journal->Add("a", {{1}, 0, 1}).ok());
  EXPECT_NE(journal->Find("a"), nullptr);
}

TEST_F(JournalTest, AFolderThatIsNotThereIsSaid) {
  absl::StatusOr<Journal> journal =
      Journal::Open(folder_.path() + "/none/runs.jsonl");
  ASSERT_TRUE(journal.ok());
  const absl::Status status = journal->Add("a", {{1}, 0, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("none/runs.jsonl"));
}

}  // namespace
}  // namespace measure
