// The records that the torch collector's hooks write into slots
// (stepscope/slot.h). An operator's record is reserved when it starts, so
// records are in pre-order. Its end is filled in when the operator ends, and is
// 0 if it never did.
//
//   tag              word 0  word 1   word 2       word 3, upper 56 bits
//   kOpSlot          begin   end      const char*  sequence number
//   kTextOpSlot      begin   end      TextFields   sequence number
//   kMemorySlot      ticks   address  bytes        device type, device; then
//                                                  total allocated, reserved
//   kHostMemorySlot  ticks   address  bytes        total allocated
//   kInputsSlot      -       -        words        - (torch_input_words.h)
//   kStackSlot       -       -        addresses    -
//   kCommsSlot       -       -        words        - (CommsWord)
//   kPythonSlot      -       -        -            number of the sample
//
// The last four belong to the operator before them on the thread. A user scope
// is a kRangeSlot of the session. The key of a record that ends on another
// thread is the address of its RecordFunction.
#pragma once

#include <stepscope/slot.h>
#include <stepscope/slot_sources.h>

#include <cstddef>
#include <cstdint>

namespace stepscope {

// The usual operator. Its schema owns the name, so a pointer is enough.
inline constexpr SlotTag kOpSlot =
    MakeSlotTag(kTorchSlots, 0, RecordLength::kOneSlot);
inline constexpr SlotTag kTextOpSlot =
    MakeSlotTag(kTorchSlots, 1, RecordLength::kTexts);
inline constexpr SlotTag kMemorySlot =
    MakeSlotTag(kTorchSlots, 2, RecordLength::kTwoSlots);
// The usual allocation: on the CPU, which has no reserved total.
inline constexpr SlotTag kHostMemorySlot =
    MakeSlotTag(kTorchSlots, 3, RecordLength::kOneSlot);
inline constexpr SlotTag kInputsSlot =
    MakeSlotTag(kTorchSlots, 4, RecordLength::kWords);
inline constexpr SlotTag kStackSlot =
    MakeSlotTag(kTorchSlots, 5, RecordLength::kWords);
inline constexpr SlotTag kCommsSlot =
    MakeSlotTag(kTorchSlots, 6, RecordLength::kWords);
inline constexpr SlotTag kPythonSlot =
    MakeSlotTag(kTorchSlots, 7, RecordLength::kOneSlot);

// kTextOpSlot: OpKind in the lowest bit, and above it RecordFunction's logical
// id of the forward thread, or 0 if there is none. (These ids are small,
// because they count up from 1.)
constexpr uint32_t PackTextOp(bool is_backward, uint64_t forward_thread) {
  return (forward_thread < (uint64_t{1} << 31)
              ? static_cast<uint32_t>(forward_thread << 1)
              : 0) |
         (is_backward ? 1 : 0);
}

// The upper bits of kMemorySlot's word 3: device type in the low 8 bits, device
// index above (-1: none).
constexpr int64_t PackDevice(int device_type, int device) {
  return static_cast<int64_t>(device) * 256 + device_type;
}

// kCommsSlot: these words in this order, then the texts' bytes: collective,
// group name, group description, ranks of the group.
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
