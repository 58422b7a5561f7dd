// The slots of a closed window, and a walk over their records. The walk is safe
// for any bytes: a record that is longer than the rest of its chunk ends the
// chunk and is counted.
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

// One thread's part of a window.
struct SlotThread {
  int64_t tid = 0;
  // ThreadLog::source_thread: what the source that pushed records calls this
  // thread; 0 if it gave no number.
  uint64_t source_thread = 0;
  std::string name;
  std::vector<std::span<const Slot>> chunks = {};  // in the order written
  // Records still open when the window closed: their first slots and keys.
  std::vector<std::pair<const Slot*, const void*>> open = {};
};

// All slots of a window. Valid while the buffers they were recorded into are.
struct SlotLog {
  int64_t pid = 0;
  Ticks closed = 0;  // records that never ended are ended here
  std::vector<SlotThread> threads = {};
};

// The number of slots of the record that starts at `slot`; 0 if its tag is
// invalid.
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

// Calls visit(first slot) for every record in order, of any source; returns the
// number of invalid records. The session reports those of a window, so other
// sources ignore the result.
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

// The texts of a kTexts record. Valid while the slots are.
inline Texts TextsOf(const Slot& slot) {
  const auto fields = std::bit_cast<TextFields>(slot.word[2]);
  const char* text = reinterpret_cast<const char*>(&slot + 1);
  return {.name = {text, fields.name_bytes},
          .detail = {text + fields.name_bytes, fields.detail_bytes}};
}

}  // namespace stepscope
