#include "nvtx_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <string>

namespace stepscope::nvtx_text_test {
namespace {

std::string Utf8(const wchar_t* text, size_t room = 100) {
  std::string out(room, '?');
  return std::string(ToUtf8(text, out));
}

TEST(NvtxTextTest, WritesCharactersOfEachLength) {
  EXPECT_EQ(Utf8(L"a\x7f"), "a\x7f");
  EXPECT_EQ(Utf8(L"\u0080\u07ff"), "\u0080\u07ff");
  EXPECT_EQ(Utf8(L"\u0800\uffff"), "\u0800\uffff");
  EXPECT_EQ(Utf8(L"\U00010000\U0010ffff"), "\U00010000\U0010ffff");
  EXPECT_EQ(Utf8(L""), "");
  EXPECT_EQ(Utf8(nullptr), "");
}

TEST(NvtxTextTest, ReplacesWhatIsNoCharacter) {
  const wchar_t bad[] = {0xd800, 'a', 0x110000, -1, 0xdfff, 0};
  EXPECT_EQ(Utf8(bad),
            "\ufffd"
            "a\ufffd\ufffd\ufffd");
}

TEST(NvtxTextTest, CutsBetweenCharacters) {
  EXPECT_EQ(Utf8(L"ab\u00e9", 4), "ab\u00e9");
  EXPECT_EQ(Utf8(L"ab\u00e9", 3), "ab");
  EXPECT_EQ(Utf8(L"ab", 0), "");
}

TEST(NvtxTextTest, PayloadsReadBackAsTheSameNumber) {
  const double third = 1.0 / 3;
  EXPECT_EQ(std::stod(PayloadText(NvtxPayload::kDouble,
                                  std::bit_cast<uint64_t>(third))),
            third);
  EXPECT_EQ(PayloadText(NvtxPayload::kDouble,
                        std::bit_cast<uint64_t>(
                            std::numeric_limits<double>::infinity())),
            "inf");
  // Only the low half belongs to a 32-bit payload.
  EXPECT_EQ(PayloadText(NvtxPayload::kInt32, 0x55555555ffffffff), "-1");
  EXPECT_EQ(PayloadText(NvtxPayload::kUint32, 0x5555555500000001), "1");
  EXPECT_EQ(PayloadText(NvtxPayload::kNone, 1), "");
}

}  // namespace
}  // namespace stepscope::nvtx_text_test
