#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stepscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<Arguments> Parse(const std::vector<std::string>& words) {
  return ParseArguments(words);
}

std::string Error(const std::vector<std::string>& words) {
  const absl::StatusOr<Arguments> arguments = Parse(words);
  EXPECT_FALSE(arguments.ok());
  return std::string(arguments.status().message());
}

TEST(ParseArgumentsTest, ReadsEveryOptionInBothSpellings) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"analyze", "a", "--format", "json", "--output",
                                 "f", "--run", "r", "--cycle", "2", "--verbose",
                                 "b"},
        std::vector<std::string>{"analyze", "--format=json", "-o", "f",
                                 "--run=r", "--cycle=2", "-v", "a", "b"}}) {
    const absl::StatusOr<Arguments> arguments = Parse(words);
    ASSERT_TRUE(arguments.ok()) << arguments.status().message();
    EXPECT_EQ(arguments->command, Command::kAnalyze);
    EXPECT_THAT(arguments->paths, ElementsAre("a", "b"));
    EXPECT_EQ(arguments->format, ReportFormat::kJson);
    EXPECT_EQ(arguments->output, "f");
    EXPECT_EQ(arguments->run, "r");
    EXPECT_EQ(arguments->cycle, 2);
    EXPECT_TRUE(arguments->verbose);
  }
}

TEST(ParseArgumentsTest, WhatFollowsTwoDashesIsAPath) {
  const absl::StatusOr<Arguments> arguments = Parse({"analyze", "--", "-x"});
  ASSERT_TRUE(arguments.ok());
  EXPECT_THAT(arguments->paths, ElementsAre("-x"));
}

TEST(ParseArgumentsTest, HelpNeedsNoPath) {
  EXPECT_EQ(Parse({"analyze", "--help"})->command, Command::kAnalyzeHelp);
  EXPECT_EQ(Parse({"--help"})->command, Command::kHelp);
  EXPECT_EQ(Parse({"--version"})->command, Command::kVersion);
}

TEST(ParseArgumentsTest, TheDoctorAsksOnePythonOrTwo) {
  const auto one = Parse({"doctor", "--python=a"});
  EXPECT_EQ(one->python, "a");
  EXPECT_EQ(one->viewers, "");
  const auto two = Parse({"doctor", "--viewers", "b", "--python", "a"});
  EXPECT_EQ(two->command, Command::kDoctor);
  EXPECT_EQ(two->python, "a");
  EXPECT_EQ(two->viewers, "b");
  EXPECT_THAT(Error({"doctor", "--viewers="}), HasSubstr("needs a value"));
  EXPECT_THAT(Error({"doctor", "--python", "a", "--python"}),
              HasSubstr("needs a value"));
}

TEST(ParseArgumentsTest, SuggestsTheNearestWord) {
  EXPECT_THAT(Error({"analyse", "x"}), HasSubstr("did you mean 'analyze'?"));
  EXPECT_THAT(Error({"analyze", "--fromat", "json", "x"}),
              HasSubstr("did you mean '--format'?"));
  EXPECT_THAT(Error({"analyze", "--verbos", "x"}),
              HasSubstr("did you mean '--verbose'?"));
  EXPECT_THAT(Error({"--verbose", "analyze", "x"}),
              HasSubstr("behind the command"));
}

TEST(ParseArgumentsTest, SuggestsNothingThatIsFarAway) {
  EXPECT_THAT(Error({"zzz"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(Error({"analyze", "--zzzzzzzz", "x"}),
              Not(HasSubstr("did you mean")));
}

TEST(ParseArgumentsTest, SaysWhatAnOptionWants) {
  EXPECT_THAT(Error({"analyze"}), HasSubstr("analyze PATH..."));
  EXPECT_THAT(Error({"analyze", "x", "--format", "xml"}),
              HasSubstr("text, json or markdown"));
  EXPECT_THAT(Error({"analyze", "x", "--cycle", "-1"}), HasSubstr("from 0 on"));
  EXPECT_THAT(Error({"analyze", "x", "--cycle=two"}), HasSubstr("'two'"));
  EXPECT_THAT(Error({"analyze", "x", "--output"}), HasSubstr("needs a value"));
  EXPECT_THAT(Error({"analyze", "x", "--verbose=1"}), HasSubstr("no value"));
}

}  // namespace
}  // namespace stepscope
