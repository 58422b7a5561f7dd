#include <gtest/gtest.h>

#include "chrome/reader/chrome_event_reader.h"

namespace stepscope::chrome_values_test {
namespace {

Field Scalar(std::string_view text) { return {text, Field::Type::kScalar}; }

int64_t Ns(std::string_view text) {
  return ToNanoseconds(Scalar(text)).value_or(INT64_MIN);
}

TEST(ToNanosecondsTest, ReadsWholeAndDecimalMicroseconds) {
  EXPECT_EQ(Ns("0"), 0);
  EXPECT_EQ(Ns("7"), 7000);
  EXPECT_EQ(Ns("7.5"), 7500);
  EXPECT_EQ(Ns("7.001"), 7001);
  EXPECT_EQ(Ns("-3.25"), -3250);
  EXPECT_EQ(Ns("007"), 7000);
}

TEST(ToNanosecondsTest, KeepsNanosecondsWhereADoubleCannot) {
  EXPECT_EQ(Ns("1661542444297228"), 1661542444297228000);
  EXPECT_EQ(Ns("1661542444297228.123"), 1661542444297228123);
  EXPECT_EQ(Ns("1661542444297228.124"), 1661542444297228124);
  EXPECT_EQ(Ns("4026150068462.228"), 4026150068462228);
}

TEST(ToNanosecondsTest, RoundsBeyondTheNanosecond) {
  EXPECT_EQ(Ns("0.0004"), 0);
  EXPECT_EQ(Ns("0.0005"), 1);
  EXPECT_EQ(Ns("1.00049999999999999999999"), 1000);
  EXPECT_EQ(Ns("1.0005"), 1001);
  EXPECT_EQ(Ns("3.14159265358979323846264338327950288"), 3142);
}

TEST(ToNanosecondsTest, ReadsExponents) {
  EXPECT_EQ(Ns("1.5e3"), 1500000);
  EXPECT_EQ(Ns("1.661542444297228e+15"), 1661542444297228000);
  EXPECT_EQ(Ns("2500e-3"), 2500);
  EXPECT_EQ(Ns("1e-9"), 0);
  EXPECT_EQ(Ns("0e30"), 0);
}

TEST(ToNanosecondsTest, ReadsNumbersInText) {
  EXPECT_EQ(ToNanoseconds({"12.5", Field::Type::kText}), 12500);
}

TEST(ToNanosecondsTest, RefusesWhatIsNoTime) {
  for (std::string_view text :
       {"", "-", "NaN", "Infinity", "null", "true", "1.", ".5", "1e", "1x",
        "1.5.2", "--1", "1e99", "99999999999999999999", "9e15000", "0x10"}) {
    EXPECT_EQ(Ns(text), INT64_MIN) << text;
  }
  EXPECT_FALSE(ToNanoseconds(Field()));
  EXPECT_FALSE(ToNanoseconds({"[1]", Field::Type::kArray}));
}

TEST(ToIntegerTest, ReadsNumbersAndTextOfNumbers) {
  EXPECT_EQ(ToInteger(Scalar("-12")), -12);
  EXPECT_EQ(ToInteger({"128", Field::Type::kText}), 128);
  EXPECT_EQ(ToInteger(Scalar("63.9")), 63);
  EXPECT_EQ(ToInteger(Scalar("18446744073709551615")), -1);  // an address
  EXPECT_FALSE(ToInteger(Scalar("NaN")));
  EXPECT_FALSE(ToInteger(Scalar("1e300")));
  EXPECT_FALSE(ToInteger({"stream 7", Field::Type::kText}));
  EXPECT_FALSE(ToInteger(Field()));
}

TEST(ToRealTest, RefusesWhatIsNotFinite) {
  EXPECT_DOUBLE_EQ(ToReal(Scalar("0.625")).value(), 0.625);
  EXPECT_FALSE(ToReal(Scalar("Infinity")));
  EXPECT_FALSE(ToReal(Scalar("inf")));
  EXPECT_FALSE(ToReal(Scalar("nan")));
}

std::string Plain(std::string_view text) {
  std::string scratch;
  return std::string(Unescape(text, &scratch));
}

TEST(UnescapeTest, ResolvesEveryEscape) {
  EXPECT_EQ(Plain("plain"), "plain");
  EXPECT_EQ(Plain(R"(a\"b\\c\/d\b\f\n\r\t)"), "a\"b\\c/d\b\f\n\r\t");
  EXPECT_EQ(Plain(R"(\u0041\u00e9\u20ac)"), "A\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(Plain(R"(\ud83d\ude00)"), "\xf0\x9f\x98\x80");
}

TEST(UnescapeTest, ReplacesWhatIsNoCharacter) {
  EXPECT_EQ(Plain(R"(\ud83d)"), "\xef\xbf\xbd");
  EXPECT_EQ(Plain(R"(\ude00x)"), "\xef\xbf\xbdx");
  EXPECT_EQ(Plain(R"(\ud83d\u0041)"),
            "\xef\xbf\xbd"
            "A");
  EXPECT_EQ(Plain("tail\\"), "tail\\");
}

TEST(UnescapeTest, KeepsBackslashesThatEscapeNothing) {
  EXPECT_EQ(Plain(R"(C:\Users\q\users\u12)"), R"(C:\Users\q\users\u12)");
}

}  // namespace
}  // namespace stepscope::chrome_values_test
