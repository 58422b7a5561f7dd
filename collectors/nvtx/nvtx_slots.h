// NVTX events in slots: one kNvtxSlot record each, in the order of their
// thread's calls. Pops are matched with pushes, and ends with starts, only when
// the window is decoded, so that a hook needs no stack.
//
//   word 0   ticks
//   word 1   domain (its handle; 0: the default one)
//            kEnd: the address of the start's slot; 0: it is of another window
//   word 2   registered string (its handle), 0 if the text follows
//   word 3   slot tag 8 | NvtxEvent 3 | payload type 4 | - 1 | category 32 |
//            bytes that follow 16
//
// The bytes that follow: the payload (8 bytes) unless its type is 0, then the
// text.
#pragma once

#include <stepscope/slot.h>
#include <stepscope/slot_sources.h>

#include <cstddef>
#include <cstdint>

namespace stepscope {

inline constexpr SlotTag kNvtxSlot =
    MakeSlotTag(kNvtxSlots, 0, RecordLength::kBytes);

enum class NvtxEvent : uint8_t { kPush, kPop, kStart, kEnd, kMark };

// NVTX's own numbers of payload types (nvtxPayloadType_t).
enum class NvtxPayload : uint8_t {
  kNone,
  kUint64,
  kInt64,
  kDouble,
  kUint32,
  kInt32,
  kFloat,
};
inline constexpr uint32_t kNvtxPayloadTypes = 7;
inline constexpr size_t kNvtxPayloadBytes = 8;

constexpr uint64_t PackNvtx(NvtxEvent event, NvtxPayload payload,
                            uint32_t category, size_t following_bytes) {
  return static_cast<uint64_t>(kNvtxSlot) | static_cast<uint64_t>(event) << 8 |
         static_cast<uint64_t>(payload) << 11 |
         static_cast<uint64_t>(category) << 16 |
         static_cast<uint64_t>(following_bytes) << 48;
}

constexpr NvtxEvent NvtxEventOf(const Slot& slot) {
  return static_cast<NvtxEvent>(slot.word[3] >> 8 & 7);
}
constexpr NvtxPayload NvtxPayloadOf(const Slot& slot) {
  return static_cast<NvtxPayload>(slot.word[3] >> 11 & 15);
}
constexpr uint32_t NvtxCategoryOf(const Slot& slot) {
  return static_cast<uint32_t>(slot.word[3] >> 16);
}

// Returns a range's id: the address of its start's slot in the low 48 bits, and
// the number of its window above. Never 0, which is the id of a range that was
// not recorded.
inline constexpr int kNvtxAddressBits = 48;
inline uint64_t NvtxRangeId(const Slot* start, uint64_t window) {
  return (1 + window % 0xffff) << kNvtxAddressBits |
         reinterpret_cast<uint64_t>(start);
}
// Returns the start's address if the id is of this window, else 0.
constexpr uint64_t NvtxStartOf(uint64_t id, uint64_t window) {
  if (id >> kNvtxAddressBits != 1 + window % 0xffff) return 0;
  return id & ((uint64_t{1} << kNvtxAddressBits) - 1);
}

}  // namespace stepscope
