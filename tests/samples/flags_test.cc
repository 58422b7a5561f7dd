#include "flags/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace resnet::flags_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Target {
  int number = 7;
  bool yes = false;
  bool bit = true;
  double rate = 1;
  std::string text = "before";
  std::vector<Flag> flags = {
      {"Title", "", "", nullptr},
      {"--number", "N", "a number", AtLeast(2, &number)},
      {"--yes", "", "a switch", SetTo(&yes, true)},
      {"--bit", "0|1", "a bit", Bit(&bit)},
      {"--rate", "X", "a rate", Positive(&rate)},
      {"--text", "T",
       "a text that says what it is for at great length, so "
       "that it does not fit into one line of the help",
       Text(&text)},
  };
  std::string Parse(std::vector<const char*> args) {
    return std::string(ParseFlags(flags, args).message());
  }
};

TEST(FlagsTest, ValuesFollowABlankOrAnEqualsSign) {
  Target target;
  EXPECT_EQ(target.Parse({"--number", "12", "--text=a=b", "--yes", "--bit=0",
                          "--rate", "1e-3"}),
            "");
  EXPECT_EQ(target.number, 12);
  EXPECT_EQ(target.text, "a=b");
  EXPECT_TRUE(target.yes);
  EXPECT_FALSE(target.bit);
  EXPECT_EQ(target.rate, 1e-3);
}

TEST(FlagsTest, NothingGivenChangesNothing) {
  Target target;
  EXPECT_EQ(target.Parse({}), "");
  EXPECT_EQ(target.number, 7);
  EXPECT_EQ(target.text, "before");
}

TEST(FlagsTest, TheLastOfTwoCounts) {
  Target target;
  EXPECT_EQ(target.Parse({"--number", "3", "--number", "4"}), "");
  EXPECT_EQ(target.number, 4);
}

TEST(FlagsTest, AnUnknownFlagNamesTheNearest) {
  Target target;
  EXPECT_THAT(target.Parse({"--nubmer", "3"}),
              HasSubstr("unknown flag --nubmer; did you mean --number?"));
  EXPECT_THAT(target.Parse({"--num=3"}), HasSubstr("did you mean --number?"));
  EXPECT_THAT(target.Parse({"number"}), HasSubstr("did you mean --number?"));
}

TEST(FlagsTest, AFlagLikeNoOtherNamesNone) {
  Target target;
  std::string message = target.Parse({"--zzzzzzzzzzzz"});
  EXPECT_THAT(message, HasSubstr("unknown flag --zzzzzzzzzzzz"));
  EXPECT_THAT(message, Not(HasSubstr("did you mean")));
}

TEST(FlagsTest, WrongValuesSayWhatWouldBeRight) {
  Target target;
  EXPECT_EQ(target.Parse({"--number", "1"}),
            "--number must be a whole number of at least 2, not '1'");
  EXPECT_EQ(target.Parse({"--number", "2x"}),
            "--number must be a whole number of at least 2, not '2x'");
  EXPECT_EQ(target.Parse({"--number=99999999999"}),
            "--number must be a whole number of at least 2, not "
            "'99999999999'");
  EXPECT_EQ(target.Parse({"--bit", "yes"}), "--bit must be 0 or 1, not 'yes'");
  EXPECT_EQ(target.Parse({"--rate", "nan"}),
            "--rate must be a number above 0, not 'nan'");
  EXPECT_EQ(target.Parse({"--rate=0"}),
            "--rate must be a number above 0, not '0'");
  EXPECT_EQ(target.Parse({"--text="}), "--text must be a text, not ''");
  EXPECT_EQ(target.Parse({"--number"}), "--number needs a value: N");
  EXPECT_EQ(target.Parse({"--yes=1"}), "--yes takes no value");
  EXPECT_EQ(target.number, 7);
}

TEST(FlagsTest, TheHelpFitsTheTerminalAndLosesNoWord) {
  Target target;
  std::istringstream help(DescribeFlags(target.flags));
  std::string all;
  for (std::string line; std::getline(help, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    for (std::istringstream words(line); words >> line;) all += line + " ";
  }
  EXPECT_EQ(all,
            "Title --number N a number --yes a switch --bit 0|1 a bit "
            "--rate X a rate --text T a text that says what it is for at "
            "great length, so that it does not fit into one line of the "
            "help ");
}

TEST(FlagsTest, TheHelpCutsAWordThatIsWiderThanItsColumn) {
  const std::string wide(60, 'x');
  const std::string column(24, ' ');
  const auto help_of = [](std::string help) {
    return DescribeFlags(
        std::vector<Flag>{{"--path", "P", std::move(help), Text(nullptr)}});
  };
  const std::string flag = "  --path P" + column.substr(10);
  const std::string cut = wide.substr(0, 56);
  EXPECT_THAT(help_of(wide + " there"),
              HasSubstr(flag + cut + "\n" + column + "xxxx there\n"));
  EXPECT_THAT(help_of("see " + wide), HasSubstr(flag + "see\n" + column + cut +
                                                "\n" + column + "xxxx\n"));
  EXPECT_THAT(help_of(cut + " there"),
              HasSubstr(flag + cut + "\n" + column + "there\n"));
}

}  // namespace
}  // namespace resnet::flags_test
