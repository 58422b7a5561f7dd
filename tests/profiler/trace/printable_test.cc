#include <gtest/gtest.h>
#include <stepscope/printable.h>

#include <string>

namespace stepscope::printable_test {
namespace {

TEST(PrintableTest, OrdinaryTextStaysAsItIs) {
  for (const char* text : {"", "aten::mm", "void gemm<float, 3>(float*)",
                           "größer", "行列", "🔥", "C:\\x1b", "a  b"}) {
    EXPECT_EQ(Printable(text), text);
    EXPECT_EQ(PrintableLines(text), text);
  }
}

TEST(PrintableTest, WhatATerminalActsOnBecomesVisible) {
  EXPECT_EQ(Printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(Printable("\x07\x7f"), "\\x07\\x7f");
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\u009b");  // same as ESC [
}

TEST(PrintableTest, WhatReversesHidesOrBreaksTextBecomesVisible) {
  EXPECT_EQ(Printable("\xe2\x80\xae"), "\\u202e");
  EXPECT_EQ(Printable("\xe2\x80\xa8"), "\\u2028");
  EXPECT_EQ(Printable("\xe2\x81\xa6"), "\\u2066");
  EXPECT_EQ(Printable("\xe2\x80\x8b"), "\\u200b");
  EXPECT_EQ(Printable("\xef\xbb\xbf"), "\\ufeff");
  EXPECT_EQ(Printable("\xf3\xa0\x80\x81"), "\\U000e0001");
}

TEST(PrintableTest, BytesThatAreNoUtf8BecomeVisible) {
  EXPECT_EQ(Printable("\x9b"), "\\x9b");
  EXPECT_EQ(Printable("a\xc3"), "a\\xc3");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(PrintableTest, ANameBeginsNoLine) {
  EXPECT_EQ(Printable("a\nb\r\tc"), "a b  c");
  EXPECT_EQ(PrintableLines("a\nb\r\tc"), "a\nb  c");
}

TEST(PrintableTest, OnlyColoursOfReportsPassWhereColoursAreAskedFor) {
  const std::string text = "\x1b[1;31mid\x1b[0m \x1b[8mhidden";
  EXPECT_EQ(PrintableLines(text, true), "\x1b[1;31mid\x1b[0m \\x1b[8mhidden");
  EXPECT_EQ(PrintableLines(text), "\\x1b[1;31mid\\x1b[0m \\x1b[8mhidden");
}

}  // namespace
}  // namespace stepscope::printable_test
