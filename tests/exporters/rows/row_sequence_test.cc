#include "rows/row_sequence.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace stepscope::row_sequence_test {
namespace {

using Rows = std::vector<std::pair<Table, RowId>>;

RowSequence TapeOf(const Rows& rows) {
  RowSequence tape;
  for (const auto& [table, row] : rows) tape.Add(table, row);
  return tape;
}

Rows RowsOf(const RowSequence& tape) {
  Rows rows;
  RowSequenceReader reader(tape);
  for (size_t i = 0; i < tape.count(); ++i) {
    reader.Next();
    rows.push_back({reader.table(), reader.row()});
  }
  return rows;
}

TEST(RowSequenceTest, GivesBackRowsOfSeveralTablesInTheOrderTheyCame) {
  const Rows rows = {{Table::kOp, 0},
                     {Table::kOp, 1},
                     {Table::kKernel, 5},
                     {Table::kOp, 2},
                     {Table::kKernel, 6}};
  EXPECT_EQ(RowsOf(TapeOf(rows)), rows);
}

TEST(RowSequenceTest, GivesBackRowsFarApart) {
  // Around distances that need another byte, up to the last possible row.
  const Rows rows = {
      {Table::kSync, 14},           {Table::kSync, 14 + 15},
      {Table::kSync, 14 + 15 + 16}, {Table::kSync, 14 + 15 + 16 + 15 + 128},
      {Table::kSync, 1 << 20},      {Table::kSync, kNone - 1}};
  EXPECT_EQ(RowsOf(TapeOf(rows)), rows);
}

TEST(RowSequenceTest, GivesBackRowsAtRandomDistances) {
  std::mt19937 random(7);
  Rows rows;
  RowId next[4] = {};
  for (int i = 0; i < 10'000; ++i) {
    const uint32_t table = random() % 4;
    next[table] += 1 + random() % (random() % 100 == 0 ? 100'000 : 20);
    rows.push_back({static_cast<Table>(table), next[table]});
  }
  EXPECT_EQ(RowsOf(TapeOf(rows)), rows);
}

TEST(RowSequenceTest, IsReadFromTheBeginAgain) {
  const RowSequence tape = TapeOf({{Table::kRange, 3}, {Table::kRange, 9}});
  EXPECT_EQ(RowsOf(tape), RowsOf(tape));
  EXPECT_EQ(tape.count(), 2u);
}

}  // namespace
}  // namespace stepscope::row_sequence_test
