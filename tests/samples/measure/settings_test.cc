#include "measure/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace measure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Settings Of(const char* text) { return *Settings::Parse(text); }

TEST(SettingsTest, AFlagTakesTheWordBehindItUnlessThatIsAFlag) {
  const Settings settings = Of("--workers 1 --bf16 --batch=64 --lr -0.5");
  EXPECT_EQ(settings.Get("--workers"), "1");
  EXPECT_EQ(settings.Get("--batch"), "64");
  EXPECT_EQ(settings.Get("--lr"), "-0.5");
  EXPECT_TRUE(settings.Has("--bf16"));
  EXPECT_EQ(settings.Get("--bf16"), "");
  EXPECT_FALSE(settings.Has("--side"));
}

TEST(SettingsTest, TheLastOfTwoValuesCounts) {
  EXPECT_EQ(Of("--batch 32 --batch=64"), Of("--batch 64"));
}

TEST(SettingsTest, TheOrderOfFlagsMakesNoDifference) {
  EXPECT_EQ(Of("--b 1 --a"), Of("--a --b 1"));
  EXPECT_EQ(Of("--b 1 --a").Text(), Of("--a --b 1").Text());
}

TEST(SettingsTest, AWordThatBelongsToNothingIsRefused) {
  for (const char* text : {"workers 1", "--batch=64 32", "--a 1 2", "-- 1"}) {
    EXPECT_EQ(Settings::Parse(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_THAT(std::string(Settings::Parse("--a 1 two").status().message()),
              HasSubstr("'two'"));
}

TEST(SettingsTest, ArgumentsAndTextSayTheSame) {
  const Settings settings = Of("--batch 64 --bf16");
  EXPECT_THAT(settings.Arguments(), ElementsAre("--batch=64", "--bf16"));
  EXPECT_EQ(settings.Text(), "--batch 64 --bf16");
  EXPECT_EQ(Settings().Text(), "(defaults)");
  EXPECT_EQ(Of(settings.Text().c_str()), settings);
}

TEST(SettingsTest, WordsOfAShellMayHoldBlanks) {
  absl::StatusOr<Settings> settings =
      Settings::Of({"--json", "my file", "--data=a b"});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->Get("--json"), "my file");
  EXPECT_EQ(settings->Get("--data"), "a b");
}

TEST(SettingsTest, NumbersAreWholeOrNotThere) {
  const Settings settings = Of("--a 12 --b 12x --c --d 99999999999");
  EXPECT_EQ(settings.Number("--a", 7), 12);
  EXPECT_EQ(settings.Number("--b", 7), 7);
  EXPECT_EQ(settings.Number("--c", 7), 7);
  EXPECT_EQ(settings.Number("--d", 7), 7);
  EXPECT_EQ(settings.Number("--e", 7), 7);
}

TEST(SettingsTest, WhatIsLaidOverWins) {
  EXPECT_EQ(Of("--a 1 --b 2").With(Of("--b 3 --c")), Of("--a 1 --b 3 --c"));
}

TEST(SettingsTest, ADifferenceNamesWhatIsSetAndWhatGoes) {
  EXPECT_EQ(Difference(Of("--a 1 --b --c 2"), Of("--a 2 --c 2 --d")),
            "--a 2, --d, without --b");
  EXPECT_EQ(Difference(Of("--a 1"), Of("--a 1")), "");
}

}  // namespace
}  // namespace measure
