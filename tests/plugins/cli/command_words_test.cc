#include "command_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stepscope::command_words_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Option kOptions[] = {{.name = "--format", .value = "FORMAT"},
                               {"--output", "-o", "FILE"},
                               {"--verbose", "-v"},
                               {.name = "--cycle", .value = "N"}};

absl::StatusOr<CommandWords> Parse(const std::vector<std::string>& words) {
  return ParseCommandWords(words, kOptions);
}

std::string Error(const std::vector<std::string>& words) {
  const absl::StatusOr<CommandWords> parsed = Parse(words);
  EXPECT_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

TEST(CommandWordsTest, ReadsEveryOptionInBothSpellings) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"analyze", "a", "--format", "json", "--output",
                                 "f", "--cycle", "2", "--verbose", "b"},
        std::vector<std::string>{"analyze", "--format=json", "-o", "f",
                                 "--cycle=2", "-v", "a", "b"}}) {
    const absl::StatusOr<CommandWords> parsed = Parse(words);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_THAT(parsed->arguments, ElementsAre("a", "b"));
    EXPECT_EQ(parsed->value("--format"), "json");
    EXPECT_EQ(parsed->value("--output"), "f");
    EXPECT_EQ(*NumberOf(*parsed, "--cycle", -1), 2);
    EXPECT_TRUE(parsed->has("--verbose"));
    EXPECT_FALSE(parsed->has("--help"));
  }
}

TEST(CommandWordsTest, WhatFollowsTwoDashesIsNoOption) {
  const absl::StatusOr<CommandWords> parsed = Parse({"analyze", "--", "-x"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->arguments, ElementsAre("-x"));
}

TEST(CommandWordsTest, HelpIsKnownToEveryCommand) {
  EXPECT_TRUE(Parse({"analyze", "--help"})->has("--help"));
  EXPECT_TRUE(Parse({"analyze", "-h"})->has("--help"));
}

TEST(CommandWordsTest, AnOptionNeedsItsValueAndNoOther) {
  EXPECT_THAT(Error({"x", "--format="}), HasSubstr("needs a value"));
  EXPECT_THAT(Error({"x", "--format", "a", "--format"}),
              HasSubstr("needs a value"));
  EXPECT_THAT(Error({"x", "--verbose=1"}), HasSubstr("takes no value"));
}

TEST(CommandWordsTest, SuggestsOnlyOptionsThatAreNear) {
  EXPECT_THAT(Error({"x", "--fromat", "a"}),
              HasSubstr("did you mean '--format'?"));
  EXPECT_THAT(Error({"x", "--zzzzzzzz"}), Not(HasSubstr("did you mean")));
}

TEST(ChoiceOfTest, IsTheFirstUnlessAnotherIsGiven) {
  constexpr std::string_view kChoices[] = {"text", "json", "markdown"};
  EXPECT_EQ(*ChoiceOf(*Parse({"x"}), "--format", kChoices), 0u);
  EXPECT_EQ(*ChoiceOf(*Parse({"x", "--format=json"}), "--format", kChoices),
            1u);
  const auto wrong =
      ChoiceOf(*Parse({"x", "--format=xml"}), "--format", kChoices);
  EXPECT_EQ(wrong.status().message(),
            "--format must be text, json or markdown, not 'xml'");
}

TEST(NumberOfTest, IsAWholeNumberFromZeroOn) {
  EXPECT_EQ(*NumberOf(*Parse({"x"}), "--cycle", -1), -1);
  EXPECT_EQ(*NumberOf(*Parse({"x", "--cycle=0"}), "--cycle", -1), 0);
  for (const char* text : {"-1", "two", "1.5", "1x"}) {
    const auto wrong =
        NumberOf(*Parse({"x", std::string("--cycle=") + text}), "--cycle", -1);
    EXPECT_FALSE(wrong.ok()) << text;
    EXPECT_THAT(std::string(wrong.status().message()),
                HasSubstr("a whole number of at least 0"));
  }
}

}  // namespace
}  // namespace stepscope::command_words_test
