#include "measure/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace measure {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Shell(const std::string& script, int limit_s = 60) {
  return RunChild({"/bin/sh", {"-c", script}, std::chrono::seconds(limit_s)});
}

TEST(RunChildTest, ASuccessSaysNothing) {
  EXPECT_TRUE(Shell("echo out; echo err >&2").ok());
}

TEST(RunChildTest, AFailureShowsItsCodeAndItsLastLines) {
  const absl::Status status = Shell(
      "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do echo line $i; done; "
      "echo 'the reason' >&2; exit 7");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("exit code 7"), HasSubstr("\n  the reason"),
                    HasSubstr("\n  line 14"), Not(HasSubstr("\n  line 2\n"))));
}

TEST(RunChildTest, AFailureWithoutAWordSaysSo) {
  EXPECT_THAT(std::string(Shell("exit 1").message()),
              HasSubstr("it printed nothing"));
}

TEST(RunChildTest, AHugeOutputShowsItsEndOnly) {
  const absl::Status status =
      Shell("head -c 100000 /dev/zero | tr '\\0' x; echo; echo end; exit 1");
  EXPECT_THAT(std::string(status.message()), HasSubstr("\n  end"));
  EXPECT_LT(status.message().size(), 5000u);
}

TEST(RunChildTest, ASignalIsNamed) {
  const absl::Status status = Shell("kill -SEGV $$");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("signal 11"));
}

TEST(RunChildTest, WhatTakesTooLongIsKilled) {
  const absl::Status status = Shell("echo begun; exec sleep 100", 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("after 1 s"), HasSubstr("begun")));
}

TEST(RunChildTest, AProgramThatIsNotThereCannotBeStarted) {
  const absl::Status status = RunChild({"/nowhere/at/all", {}});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/at/all"));
}

TEST(RunChildTest, ItsInputIsEmpty) {
  EXPECT_TRUE(Shell("test -z \"$(cat)\"").ok());
}

}  // namespace
}  // namespace measure
