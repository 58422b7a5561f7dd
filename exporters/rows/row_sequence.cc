#include "rows/row_sequence.h"

namespace stepscope {

// A line takes nearly all rows of its tables in order, so the distance to the
// previous row is nearly always 0 and fits beside the table in one byte.
void RowSequence::Add(Table table, RowId row) {
  const auto slot = static_cast<uint8_t>(table);
  RowId passed = row - next_[slot];
  next_[slot] = row + 1;
  ++count_;
  if (passed < kFar) {
    bytes_.push_back(static_cast<uint8_t>(slot | passed << kTableBits));
    return;
  }
  bytes_.push_back(static_cast<uint8_t>(slot | kFar << kTableBits));
  for (passed -= kFar; passed >= 0x80; passed >>= 7)
    bytes_.push_back(static_cast<uint8_t>(passed | 0x80));
  bytes_.push_back(static_cast<uint8_t>(passed));
}

RowId RowSequenceReader::Far() {
  RowId value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = *at_++;
    value |= static_cast<RowId>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

}  // namespace stepscope
