#include "report/layout/text_table.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/compare.h>
#include <stepscope/top.h>

#include <algorithm>

#include "report/layout/text_page.h"
#include "report/ranks_text.h"
#include "support/trace_text.h"

namespace stepscope::text_table_test {
namespace {

constexpr char kLongName[] =
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad";

size_t Widest(const std::vector<std::string>& lines) {
  size_t widest = 0;
  for (const std::string& line : lines)
    widest = std::max(widest, Columns(line));
  return widest;
}

std::vector<std::string> LinesOf(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

TextTable OpTable() {
  TextTable table("ops by time, per step", 26,
                  {{"GPU ms", 9}, {"host ms", 10}, {"calls", 8, /*spare=*/1}});
  table.Add(std::string("  ") + kLongName, {"0.11", "0.16", "13"});
  table.Add("  aten::mm", {"12.3", "0.36", "1"});
  return table;
}

TEST(ShortenedTest, LeavesOutTheMiddleInWholeCharacters) {
  EXPECT_EQ(Shortened("aten::mm", 8), "aten::mm");
  EXPECT_EQ(Shortened("abcdefghijkl", 9), "abc...jkl");
  EXPECT_EQ(Shortened("äöüäöüäöüäöü", 9), "äöü...äöü");
}

TEST(TextTableTest, KeepsItsColumnsWhereThereIsRoom) {
  EXPECT_EQ(OpTable().Lines(100),
            (std::vector<std::string>{
                "ops by time, per step                                        "
                "GPU ms   host ms   calls",
                "  autograd::engine::evaluate_functio...rad::AccumulateGrad    "
                " 0.11      0.16      13",
                "  aten::mm                                                    "
                " 12.3      0.36       1"}));
}

TEST(TextTableTest, ShortensNamesToTheWidth) {
  for (int width = 48; width <= 120; ++width) {
    const std::vector<std::string> lines = OpTable().Lines(width);
    ASSERT_EQ(lines.size(), 3u) << width;
    EXPECT_LE(Widest(lines), static_cast<size_t>(width));
    EXPECT_TRUE(lines[0].ends_with("calls")) << lines[0];
    EXPECT_TRUE(lines[1].ends_with("13")) << lines[1];
  }
}

TEST(TextTableTest, LeavesOutWhatCanBeSpared) {
  const std::vector<std::string> lines = OpTable().Lines(36);
  EXPECT_LE(Widest(lines), 36u);
  EXPECT_TRUE(lines[1].ends_with("host ms")) << lines[1];
}

TEST(TextTableTest, ALongTitleHasALineOfItsOwn) {
  TextTable table("ranks, ms per step", 6, {{"step", 10}, {"computing", 12}});
  table.Add("     0", {"14.5", "1.03"});
  EXPECT_EQ(table.Lines(100)[0], "ranks, ms per step      step   computing");
  EXPECT_EQ(table.Lines(30),
            (std::vector<std::string>{"ranks, ms per step",
                                      "            step   computing",
                                      "     0      14.5        1.03"}));
}

TEST(TextTableTest, TheTableOfRanksFitsSixtyColumns) {
  Report report;
  report.ranks.rows.resize(2);
  for (int32_t rank : {0, 1}) {
    report.ranks.rows[rank].rank = rank;
    report.ranks.rows[rank].step_ms = 1234.5;
  }
  report.ranks.groups.push_back({.ranks = {0, 1}, .description = kLongName});
  for (int width : {40, 60, 80}) {
    const std::vector<std::string> lines = RankLines(report, false, width);
    for (const std::string& line : lines) {
      // The legend is wrapped when it is printed.
      if (line.find(':') == std::string::npos) {
        EXPECT_LE(Columns(line), static_cast<size_t>(width)) << line;
      }
    }
  }
}

TEST(TextTableTest, TopFitsTheTerminalAndNamesWhatItLeavesOut) {
  const auto tables = MakeTopTables(
      TraceFromText("op 0..90000000 thread=0 " + std::string(kLongName) +
                    "\nruntime_call 10..20 thread=0 correlation=1 cudaLaunch\n"
                    "kernel 40..90000000 stream=7 correlation=1 gemm\n"),
      {.order = TopOrder::kTotal});
  for (int width : {60, 80, 100, 160}) {
    const std::string text = ToText(tables, width);
    for (const std::string& line : LinesOf(text)) {
      // The note is wrapped when it is printed.
      if (!line.starts_with("(no room")) {
        EXPECT_LE(Columns(line), static_cast<size_t>(width)) << text;
      }
    }
    EXPECT_NE(text.find(" total  "), std::string::npos) << text;
    EXPECT_EQ(text.find("no room for") == std::string::npos, width == 160)
        << text;
  }
  // A file has all columns.
  EXPECT_EQ(ToText(tables, 0).find("no room for"), std::string::npos);
}

}  // namespace
}  // namespace stepscope::text_table_test
