// Walking the records of one thread's chunks, whatever the bytes are: a record
// whose size does not fit its chunk ends the chunk and is counted.
#pragma once

#include <stepscope/slot.h>
#include <stepscope/slot_decode.h>

#include <bit>
#include <cstdint>
#include <string_view>

namespace stepscope {

// Slots of the record that starts at `slot`; 0 if its kind makes no sense.
inline size_t RecordSlots(const Slot& slot) {
  const SlotKind kind = KindOf(slot);
  if (kind == SlotKind::kNone || kind >= SlotKind::kCount) return 0;
  const size_t fixed = 1 + kFixedExtraSlots[static_cast<size_t>(kind)];
  switch (kind) {
    case SlotKind::kTextOp:
    case SlotKind::kRange: {
      const auto fields = std::bit_cast<TextFields>(slot.word[2]);
      return fixed +
             SlotsForBytes(size_t{fields.name_bytes} + fields.detail_bytes);
    }
    case SlotKind::kNvtx:
      return fixed + SlotsForBytes(FollowingBytes(slot));
    case SlotKind::kInputs:
    case SlotKind::kStack:
    case SlotKind::kComms:
      return slot.word[2] <= kMaxRecordWords
                 ? fixed + SlotsForWords(slot.word[2])
                 : 0;
    default:
      return fixed;
  }
}

// Calls visit(first slot) for every record in order; returns how many made no
// sense.
template <typename Visit>
int64_t WalkSlots(const SlotThread& thread, Visit&& visit) {
  int64_t bad = 0;
  for (std::span<const Slot> chunk : thread.chunks) {
    while (!chunk.empty()) {
      const size_t slots = RecordSlots(chunk.front());
      if (slots == 0 || slots > chunk.size()) {
        ++bad;
        break;
      }
      visit(chunk.front());
      chunk = chunk.subspan(slots);
    }
  }
  return bad;
}

struct Texts {
  std::string_view name;
  std::string_view detail;
};

// The texts of a kTextOp or kRange record. Valid while the slots are.
inline Texts TextsOf(const Slot& slot) {
  const auto fields = std::bit_cast<TextFields>(slot.word[2]);
  const char* text = reinterpret_cast<const char*>(&slot + 1);
  return {.name = {text, fields.name_bytes},
          .detail = {text + fields.name_bytes, fields.detail_bytes}};
}

}  // namespace stepscope
