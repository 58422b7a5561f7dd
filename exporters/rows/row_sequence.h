// RowSequence: which rows of a Trace stand in one line of a viewer, and in
// which order, at about a byte a row.
//
// Lines take the rows of a table in their order, so a row is told by its table
// and how far it is from the one before: nearly always a few.
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

  // A byte: the table in the low half, in the high half the rows passed over;
  // kFar of these or more: the rest follows, seven bits a byte.
  static constexpr uint8_t kFar = 15;
  static constexpr int kTableBits = 4;
  static_assert(static_cast<size_t>(Table::kCount) <= 1 << kTableBits);

  std::deque<uint8_t> bytes_;
  Rows next_ = {};  // by table: the row after the last one
  size_t count_ = 0;
};

// Walks a tape, which must not change meanwhile.
class RowSequenceReader {
 public:
  explicit RowSequenceReader(const RowSequence& tape)
      : at_(tape.bytes_.begin()) {}

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
