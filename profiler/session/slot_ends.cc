#include <stepscope/slot_ends.h>

#include <algorithm>

namespace stepscope {
namespace {

const void* AddressIn(uint64_t word) {
  return reinterpret_cast<const void*>(word);
}

}  // namespace

SlotEnds::SlotEnds(const SlotLog& log) : log_(log) {
  for (const SlotThread& thread : log.threads) {
    // Look up an end by key only for records that are known to be unended,
    // because keys are addresses, which are reused.
    for (const auto& [slot, key] : thread.open) unended_[slot] = key;
    WalkSlots(thread, [&](const Slot& slot) {
      if (TagOf(slot) == kForeignEndSlot) {
        delivered_.emplace(AddressIn(slot.word[1]), slot.word[0]);
      } else if (TagOf(slot) == kUnendedSlot) {
        unended_[static_cast<const Slot*>(AddressIn(slot.word[0]))] =
            AddressIn(slot.word[1]);
      }
    });
  }
}

SlotEnds::End SlotEnds::Of(const Slot& slot) {
  if (slot.word[1] != 0) return {.ticks = slot.word[1]};
  if (const Ticks ticks = DeliveredFor(slot); ticks != 0) {
    ++ended_elsewhere_;
    return {.ticks = ticks, .is_inexact = true};
  }
  ++unfinished_;
  // The record was still open when the window closed. The close of the window
  // becomes its end, marked as inexact.
  return {.ticks = std::max(log_.closed, slot.word[0]), .is_inexact = true};
}

// Returns the end that another thread delivered for the record at `slot`, or 0
// if there is none. An operator may end on another thread than it began on (for
// example, the range of an asynchronous collective). The thread that sees the
// end writes a record with the operator's key, which is matched here.
Ticks SlotEnds::DeliveredFor(const Slot& slot) const {
  const auto unended = unended_.find(&slot);
  if (unended == unended_.end()) return 0;
  const auto [first, last] = delivered_.equal_range(unended->second);
  Ticks best = 0;
  for (auto it = first; it != last; ++it) {
    // Addresses are reused: the first end after the record's begin is the right
    // one.
    if (it->second >= slot.word[0] && (best == 0 || it->second < best)) {
      best = it->second;
    }
  }
  return best;
}

}  // namespace stepscope
