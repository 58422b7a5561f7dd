// The slots of a closed window, and a walk over their records. The walk is safe
// for any bytes: if a record is longer than the rest of its chunk, the walk
// counts it and goes on with the next chunk.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot.h>

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepscope {

// The records of one thread in a window.
struct SlotThread {
  int64_t tid = 0;
  // ThreadLog::source_thread: the number that the source of pushed records gave
  // this thread; 0 if it gave none.
  uint64_t source_thread = 0;
  std::string name;
  std::vector<std::span<const Slot>> chunks = {};  // in the order written
  // Records still open when the window closed: their first slots and keys.
  std::vector<std::pair<const Slot*, const void*>> open = {};
};

// All slots of a window. Valid as long as the buffers that they were recorded
// into.
struct SlotLog {
  int64_t pid = 0;
  Ticks closed = 0;  // records that never ended are ended here
  std::vector<SlotThread> threads = {};
};

// Returns the number of slots of the record that starts at `slot`, or 0 if its
// tag is invalid.
inline size_t RecordSlots(const Slot& slot) {
  switch (LengthOf(TagOf(slot))) {
    case RecordLength::kOneSlot:
      return 1;
    case RecordLength::kTwoSlots:
      return 2;
    case RecordLength::kTexts: {
      const auto fields = std::bit_cast<TextFields>(slot.word[2]);
      return 1 + SlotsForBytes(size_t{fields.name_bytes} + fields.detail_bytes);
    }
    case RecordLength::kWords:
      return slot.word[2] <= kMaxRecordWords ? 1 + SlotsForWords(slot.word[2])
                                             : 0;
    case RecordLength::kBytes:
      return 1 + SlotsForBytes(FollowingBytes(slot));
    case RecordLength::kNone:
    case RecordLength::kCount:
      break;
  }
  return 0;
}

// Calls visit(first slot) for every record of any source, in order. Returns the
// number of invalid records. The session reports them for the whole window, so
// the other sources ignore the result.
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

// Returns the texts of a kTexts record. Valid as long as the slots.
inline Texts TextsOf(const Slot& slot) {
  const auto fields = std::bit_cast<TextFields>(slot.word[2]);
  const char* text = reinterpret_cast<const char*>(&slot + 1);
  return {.name = {text, fields.name_bytes},
          .detail = {text + fields.name_bytes, fields.detail_bytes}};
}

}  // namespace stepscope
