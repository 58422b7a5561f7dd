// Slots: how hooks store what happened, and the only thing they write.
//
// A thread's chunks hold records of one or more 32-byte slots. The first slot
// of a record has its kind in the low byte of word 3; its further slots are raw
// bytes. An operator's record is reserved when it starts, so records are in
// pre-order; its end is filled in when it ends, and is 0 if it never did.
//
//   kind         word 0      word 1     word 2         word 3, upper 56 bits
//   kOp          begin       end        const char*    sequence number
//   kTextOp      begin       end        TextFields     sequence number
//   kRange       begin       end        TextFields     -
//   kMemory      ticks       address    bytes          device type, device
//   kInputs      -           -          words          - (see input_words.h)
//   kStack       -           -          addresses      -
//   kComms       -           -          words          - (see CommsWords)
//   kForeignEnd  end         op's key   -              -
//   kUnended     first slot  op's key   -              -
//   kHostMemory  ticks       address    bytes          total allocated
//   kNvtx        ticks       (see collectors/nvtx/nvtx_slots.h); the upper 16
//                            bits of word 3 count the bytes that follow
//
// kInputs, kStack and kComms belong to the operator before them on the thread.
// An op's key is the address of its RecordFunction.
#pragma once

#include <array>
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

enum class SlotKind : uint8_t {
  kNone,  // never written: the rest of the chunk is empty
  kOp,
  kTextOp,
  kRange,
  kMemory,
  kInputs,
  kStack,
  kComms,
  kForeignEnd,
  kUnended,
  kNvtx,
  kHostMemory,  // the usual kMemory: on the CPU, which knows no reserved total
  kCount
};

// Slots each kind has after its first one, apart from those its own size field
// counts.
inline constexpr std::array<uint8_t, static_cast<size_t>(SlotKind::kCount)>
    kFixedExtraSlots = {
        0,  // kNone
        0,  // kOp: a plain operator is exactly one slot
        0,  // kTextOp: + its text
        0,  // kRange: + its texts
        1,  // kMemory: total allocated, total reserved
        0,  // kInputs: + its words
        0,  // kStack: + its addresses
        0,  // kComms: + its words
        0,  // kForeignEnd
        0,  // kUnended
        0,  // kNvtx: + the bytes that follow
        0,  // kHostMemory
};
static_assert(kFixedExtraSlots.size() == static_cast<size_t>(SlotKind::kCount));

// Texts longer than this are cut; the cut is counted.
inline constexpr size_t kMaxNameBytes = 480;
// Words in one kInputs or kComms record, addresses in one kStack record.
inline constexpr size_t kMaxRecordWords = 512;

// The range kind "let ClassifyRange() decide", for scopes the user named.
inline constexpr uint8_t kClassifyLater = 0xff;

// Word 2 of kTextOp and kRange. The texts follow, name then detail, in whole
// slots.
struct TextFields {
  uint16_t name_bytes = 0;
  uint16_t detail_bytes = 0;    // kRange only
  uint32_t kind_or_thread = 0;  // kRange: RangeKind or kClassifyLater
                                // kTextOp: see ForwardThread()
};
static_assert(sizeof(TextFields) == 8);

// kTextOp: OpKind in the lowest bit, above it RecordFunction's logical id of
// the forward thread (small: they count up from 1), 0 if there is none.
constexpr uint32_t PackTextOp(bool is_backward, uint64_t forward_thread) {
  return (forward_thread < (uint64_t{1} << 31)
              ? static_cast<uint32_t>(forward_thread << 1)
              : 0) |
         (is_backward ? 1 : 0);
}

constexpr uint64_t PackTail(SlotKind kind, int64_t value) {
  return static_cast<uint64_t>(value) << 8 | static_cast<uint8_t>(kind);
}
constexpr SlotKind KindOf(const Slot& slot) {
  return static_cast<SlotKind>(slot.word[3] & 0xff);
}
constexpr int64_t TailOf(const Slot& slot) {
  return static_cast<int64_t>(slot.word[3]) >> 8;
}

// kNvtx: the bytes behind the first slot.
constexpr size_t FollowingBytes(const Slot& slot) { return slot.word[3] >> 48; }

// kMemory's tail: device type in the low 8 bits, device index above (-1: none).
constexpr int64_t PackDevice(int device_type, int device) {
  return static_cast<int64_t>(device) * 256 + device_type;
}

constexpr size_t SlotsForBytes(size_t bytes) {
  return (bytes + sizeof(Slot) - 1) / sizeof(Slot);
}
constexpr size_t SlotsForWords(size_t words) { return (words + 3) / 4; }

// kComms: these words in this order, then the texts' bytes: collective, group
// name, group description, ranks of the group.
enum CommsWord : size_t {
  kCommsInElements,
  kCommsOutElements,
  kCommsDtype,  // as torch numbers scalar types
  kCommsGroupSize,
  kCommsSequence,
  kCommsTextBytes,  // four lengths of 16 bits, lowest first
  kCommsWordCount
};

}  // namespace stepscope
