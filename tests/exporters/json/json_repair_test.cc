#include "json/json_repair.h"

#include <gtest/gtest.h>

namespace stepscope::json_repair_test {
namespace {

TEST(RepairJsonTest, LeavesGoodJsonAlone) {
  const std::string good =
      "{ \"a\": [1, -2.5e3, true, null], \"b\\\\\": \"\\u00e9 \\\" \xc3\xa9\" "
      "}";
  EXPECT_EQ(RepairJson(good), good);
}

TEST(RepairJsonTest, EscapesControlCharactersInStrings) {
  EXPECT_EQ(RepairJson("{\"a\": \"x\ny\x01z\"}"),
            "{\"a\": \"x\\u000ay\\u0001z\"}");
}

TEST(RepairJsonTest, ReplacesBareWordsByNull) {
  EXPECT_EQ(RepairJson("{\"a\": NaN, \"b\":-Infinity,\"c\":[inf,N/A]}"),
            "{\"a\": null, \"b\":null,\"c\":[null,null]}");
}

TEST(RepairJsonTest, ReplacesBadUtf8) {
  EXPECT_EQ(RepairJson("\"a\xff\xc3\""), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
  // An overlong slash and a surrogate are not valid characters either.
  EXPECT_EQ(RepairJson("\"\xc0\xaf\""), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(RepairJson("\"\xed\xa0\x80\"").find('\xed'), std::string::npos);
}

TEST(RepairJsonTest, DoublesStrayBackslashes) {
  EXPECT_EQ(RepairJson(R"("C:\Users\new\x")"), R"("C:\\Users\new\\x")");
  EXPECT_EQ(RepairJson(R"("\u12")"), R"("\\u12")");
}

TEST(RepairJsonTest, DropsTrailingCommas) {
  EXPECT_EQ(RepairJson("{\"a\":[1,2 , ],}"), "{\"a\":[1,2  ]}");
}

}  // namespace
}  // namespace stepscope::json_repair_test
