// RowSequence: the rows of a Trace in one line of a viewer, in order, stored in
// about one byte per row.
//
// Rows of one table stay in order within a line. So a row is stored as its
// table and the distance from the line's previous row of that table, which is
// nearly always small.
#pragma once

#include <stepscope/trace.h>

#include <array>
#include <cstdint>
#include <deque>

#include "rows/event_order.h"

namespace stepscope {

class RowSequence {
 public:
  // REQUIRES: rows of one table come in ascending order.
  void Add(Table table, RowId row);
  size_t count() const { return count_; }

 private:
  friend class RowSequenceReader;
  using Rows = std::array<RowId, static_cast<size_t>(Table::kCount)>;

  // A byte has the table in its low half and the number of skipped rows in its
  // high half. If that number is kFar, the rest of it follows, seven bits per
  // byte.
  static constexpr uint8_t kFar = 15;
  static constexpr int kTableBits = 4;
  static_assert(static_cast<size_t>(Table::kCount) <= 1 << kTableBits);

  std::deque<uint8_t> bytes_;
  Rows next_ = {};  // by table: the row after the last one
  size_t count_ = 0;
};

// Iterates over a sequence, which must not change meanwhile.
class RowSequenceReader {
 public:
  explicit RowSequenceReader(const RowSequence& rows)
      : at_(rows.bytes_.begin()) {}

  // Moves to the next row. REQUIRES: called at most count() times.
  void Next() {
    const uint8_t byte = *at_++;
    const uint8_t slot = byte & ((1 << RowSequence::kTableBits) - 1);
    table_ = static_cast<Table>(slot);
    RowId passed = byte >> RowSequence::kTableBits;
    if (passed == RowSequence::kFar) passed += Far();
    row_ = next_[slot] + passed;
    next_[slot] = row_ + 1;
  }
  Table table() const { return table_; }
  RowId row() const { return row_; }

 private:
  RowId Far();

  std::deque<uint8_t>::const_iterator at_;
  RowSequence::Rows next_ = {};
  Table table_ = Table::kStep;
  RowId row_ = kNone;
};

}  // namespace stepscope
