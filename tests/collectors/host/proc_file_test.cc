#include "proc_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "support/temp_folder.h"

namespace stepscope::proc_file_test {
namespace {

TEST(ProcFileTest, ReadsAgainFromTheBegin) {
  TempFolder folder;
  const ProcFile file(folder.Write("counter", "1 2\n"));
  std::string text;
  EXPECT_TRUE(file.AppendTo(text));
  folder.Write("counter", "3 4\n");
  EXPECT_TRUE(file.AppendTo(text));
  EXPECT_EQ(text, "1 2\n3 4\n");
}

TEST(ProcFileTest, CutsAtTheLimit) {
  TempFolder folder;
  const ProcFile file(folder.Write("long", std::string(1000, 'x')));
  std::string text = "a";
  EXPECT_TRUE(file.AppendTo(text, 10));
  EXPECT_EQ(text, "axxxxxxxxxx");
}

TEST(ProcFileTest, ARecordComesWithOneReadAndAgain) {
  const ProcFile file("/proc/self/io");
  ASSERT_TRUE(file.is_open());
  std::string whole, record = "before ";
  EXPECT_TRUE(file.AppendTo(whole));
  EXPECT_TRUE(file.AppendRecord(record, 512));
  EXPECT_TRUE(record.starts_with("before rchar:"));
  // The counters continue; the keys stay the same.
  EXPECT_EQ(std::ranges::count(record, '\n'), std::ranges::count(whole, '\n'));
  std::string none;
  EXPECT_FALSE(ProcFile("/no/such/file").AppendRecord(none, 512));
  EXPECT_EQ(none, "");
}

TEST(ProcFileTest, AnAbsentFileReadsAsNothing) {
  const ProcFile absent("/nonexistent/file");
  std::string text = "kept";
  EXPECT_FALSE(absent.is_open());
  EXPECT_FALSE(absent.AppendTo(text));
  EXPECT_EQ(text, "kept");
  EXPECT_EQ(ReadSmallFile("/nonexistent/file"), "");
}

TEST(ProcFileTest, MovesItsFile) {
  TempFolder folder;
  ProcFile from(folder.Write("f", "x"));
  const ProcFile to(std::move(from));
  EXPECT_FALSE(from.is_open());  // NOLINT: tests the moved-from state
  EXPECT_TRUE(to.is_open());
}

TEST(ProcFileTest, FindsFieldsByTheirWholeName) {
  constexpr std::string_view kText =
      "rchar: 5\nread_bytes: 12288\ncancelled_write_bytes: 7\n"
      "write_bytes: -\nmodel name\t: A  CPU \nempty:\nlast: 9";
  EXPECT_EQ(FieldOf(kText, "read_bytes"), 12288);
  EXPECT_EQ(FieldOf(kText, "bytes"), -1);
  EXPECT_EQ(FieldOf(kText, "write_bytes"), -1);
  EXPECT_EQ(FieldOf(kText, "absent"), -1);
  EXPECT_EQ(FieldOf(kText, "last"), 9);
  EXPECT_EQ(TextOf(kText, "model name"), "A  CPU");
  EXPECT_EQ(TextOf(kText, "model"), "");
  EXPECT_EQ(TextOf(kText, "empty"), "");
}

TEST(ProcFileTest, CountsNumbersInALine) {
  EXPECT_EQ(NumberAt("10 20\t30\n", 0), 10);
  EXPECT_EQ(NumberAt("10 20\t30\n", 2), 30);
  EXPECT_EQ(NumberAt("10 20\t30\n", 3), -1);
  EXPECT_EQ(NumberAt("", 0), -1);
  EXPECT_EQ(NumberAt("max 100000", 0), -1);
  EXPECT_EQ(NumberAt("99999999999999999999", 0), -1);
}

}  // namespace
}  // namespace stepscope::proc_file_test
