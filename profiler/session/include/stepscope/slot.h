// Slots: the 32-byte units that hooks write. Hooks write nothing else.
//
// A thread's chunks contain records of one or more slots. The low byte of word
// 3 of a record's first slot is its tag: how long the record is, which source
// wrote it, and which of that source's kinds it has. The session reads only the
// length of other sources' records. The source that wrote a record defines the
// meaning of its words.
//
//   RecordLength  what follows the first slot
//   kOneSlot      nothing
//   kTwoSlots     one more slot
//   kTexts        the bytes of two texts; word 2 is TextFields
//   kWords        words of 64 bits; word 2 is their number
//   kBytes        bytes; the upper 16 bits of word 3 are their number
//
// The session's own records:
//
//   tag              word 0      word 1      word 2      word 3, upper 56 bits
//   kRangeSlot       begin       end         TextFields  -
//   kForeignEndSlot  end         record key  -           -
//   kUnendedSlot     first slot  record key  -           -
//
// The last two note that a record ended on another thread than the one that
// began it (slot_ends.h). Records that are pushed and popped have their begin
// and end, in ticks, in words 0 and 1.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace stepscope {

struct Slot {
  uint64_t word[4];
};
static_assert(sizeof(Slot) == 32);
static_assert(std::is_trivially_copyable_v<Slot>);

enum class RecordLength : uint8_t {
  kNone,  // never written: the rest of the chunk is empty
  kOneSlot,
  kTwoSlots,
  kTexts,
  kWords,
  kBytes,
  kCount
};

// A record's tag. Each source that records into a window has its own number, 1
// to 3 (0 is the session), and numbers its kinds from 0 to 7.
using SlotTag = uint8_t;
constexpr SlotTag MakeSlotTag(uint8_t source, uint8_t kind,
                              RecordLength length) {
  return static_cast<SlotTag>(kind << 5 | (source & 3) << 3 |
                              static_cast<uint8_t>(length));
}
constexpr RecordLength LengthOf(SlotTag tag) {
  return static_cast<RecordLength>(tag & 7);
}

// The session's own tags.
inline constexpr uint8_t kSessionSlots = 0;
inline constexpr SlotTag kRangeSlot =
    MakeSlotTag(kSessionSlots, 0, RecordLength::kTexts);
inline constexpr SlotTag kForeignEndSlot =
    MakeSlotTag(kSessionSlots, 1, RecordLength::kOneSlot);
inline constexpr SlotTag kUnendedSlot =
    MakeSlotTag(kSessionSlots, 2, RecordLength::kOneSlot);

// Longer texts are cut, and cuts are counted.
inline constexpr size_t kMaxNameBytes = 480;
// The most words in one kWords record.
inline constexpr size_t kMaxRecordWords = 512;

// Word 2 of a kTexts record. The texts follow, name then detail, in whole
// slots.
struct TextFields {
  uint16_t name_bytes = 0;
  uint16_t detail_bytes = 0;
  uint32_t about = 0;  // kRangeSlot: a RangeKind or kClassifyLater
};
static_assert(sizeof(TextFields) == 8);

// Used instead of a RangeKind for scopes that the program named:
// ClassifyRange() later finds the kind from the name.
inline constexpr uint8_t kClassifyLater = 0xff;

// Word 3 of a record's first slot: the tag, and 56 bits for the source.
constexpr uint64_t PackTail(SlotTag tag, int64_t value) {
  return static_cast<uint64_t>(value) << 8 | tag;
}
constexpr SlotTag TagOf(const Slot& slot) {
  return static_cast<SlotTag>(slot.word[3] & 0xff);
}
constexpr int64_t TailOf(const Slot& slot) {
  return static_cast<int64_t>(slot.word[3]) >> 8;
}

// The number of bytes behind the first slot of a kBytes record.
constexpr size_t FollowingBytes(const Slot& slot) { return slot.word[3] >> 48; }

constexpr size_t SlotsForBytes(size_t bytes) {
  return (bytes + sizeof(Slot) - 1) / sizeof(Slot);
}
constexpr size_t SlotsForWords(size_t words) { return (words + 3) / 4; }

}  // namespace stepscope
