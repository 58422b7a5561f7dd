#include "json/json_writer.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>
#include <limits>
#include <random>

namespace stepscope::json_writer_test {
namespace {

std::string Quoted(std::string_view text) {
  std::string out;
  AppendQuoted(text, out);
  return out;
}

std::string Micros(int64_t ns) {
  std::string out;
  AppendMicros(ns, out);
  return out;
}

TEST(JsonWriterTest, EscapesWhatJsonForbids) {
  EXPECT_EQ(Quoted("a\"b\\c\n\r\t"), R"("a\"b\\c\n\r\t")");
  EXPECT_EQ(Quoted(std::string_view("\0\x1f\x7f", 3)),
            R"("\u0000\u001f\u007f")");
}

TEST(JsonWriterTest, LeavesValidUtf8Alone) {
  const std::string text = "h\u00e9llo \u4f60 \U0001F525";
  EXPECT_EQ(Quoted(text), '"' + text + '"');
}

TEST(JsonWriterTest, ReplacesEveryBadByte) {
  EXPECT_EQ(Quoted("\xff"), "\"\uFFFD\"");
  EXPECT_EQ(Quoted("\xc0\xaf"), "\"\uFFFD\uFFFD\"");            // overlong
  EXPECT_EQ(Quoted("\xed\xa0\x80"), "\"\uFFFD\uFFFD\uFFFD\"");  // surrogate
  EXPECT_EQ(Quoted("\xf4\x90\x80\x80"),
            "\"\uFFFD\uFFFD\uFFFD\uFFFD\"");  // beyond U+10FFFF
  EXPECT_EQ(Quoted("cut \xe4\xbd"), "\"cut \uFFFD\uFFFD\"");
}

TEST(JsonWriterTest, AnyBytesGiveAStringThatAParserReads) {
  std::mt19937 random(3);
  simdjson::dom::parser parser;
  for (int round = 0; round < 500; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    std::string_view back;
    ASSERT_EQ(parser.parse(Quoted(bytes)).get(back), simdjson::SUCCESS);
    EXPECT_EQ(back, ValidUtf8(bytes));
  }
}

TEST(JsonWriterTest, WritesMicrosecondsExactly) {
  EXPECT_EQ(Micros(0), "0.000");
  EXPECT_EQ(Micros(7), "0.007");
  EXPECT_EQ(Micros(1'763'700'123'456'789'012), "1763700123456789.012");
  EXPECT_EQ(Micros(-1), "-0.001");
  EXPECT_EQ(Micros(-12'345), "-12.345");
  EXPECT_EQ(Micros(std::numeric_limits<int64_t>::min()),
            "-9223372036854775.808");
}

TEST(JsonWriterTest, HasNoNumbersThatJsonLacks) {
  std::string out;
  AppendDouble(std::nan(""), out);
  AppendDouble(-std::numeric_limits<double>::infinity(), out);
  AppendFloat(std::numeric_limits<float>::infinity(), out);
  EXPECT_EQ(out, "nullnullnull");
}

TEST(JsonWriterTest, PutsCommasBetweenMembersOnly) {
  std::string out;
  JsonWriter json(&out);
  json.OpenObject();
  json.Field("a", int64_t{1});
  json.Key("list");
  json.OpenList();
  json.Item();
  json.Int(1);
  json.Item();
  json.OpenObject();
  json.CloseObject();
  json.CloseList();
  json.Field("b", "x");
  json.CloseObject();
  EXPECT_EQ(out, R"({"a": 1, "list": [1, {}], "b": "x"})");
}

}  // namespace
}  // namespace stepscope::json_writer_test
