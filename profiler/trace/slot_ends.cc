#include "slot_ends.h"

#include <stepscope/slot_walk.h>

#include <algorithm>

namespace stepscope {
namespace {

const void* AddressIn(uint64_t word) {
  return reinterpret_cast<const void*>(word);
}

}  // namespace

SlotEnds::SlotEnds(const SlotLog& log, DecodeResult& result)
    : log_(log), result_(result) {
  for (const SlotThread& thread : log.threads) {
    for (const auto& [slot, key] : thread.open) unended_[slot] = key;
    WalkSlots(thread, [&](const Slot& slot) {
      if (KindOf(slot) == SlotKind::kForeignEnd) {
        delivered_.emplace(AddressIn(slot.word[1]), slot.word[0]);
      } else if (KindOf(slot) == SlotKind::kUnended) {
        unended_[static_cast<const Slot*>(AddressIn(slot.word[0]))] =
            AddressIn(slot.word[1]);
      }
    });
  }
}

SlotEnds::End SlotEnds::Of(const Slot& slot) {
  if (slot.word[1] != 0) return {.ticks = slot.word[1]};
  if (const Ticks ticks = DeliveredFor(slot); ticks != 0) {
    ++result_.ended_elsewhere;
    return {.ticks = ticks, .is_inexact = true};
  }
  ++result_.unfinished;
  return {.ticks = std::max(log_.closed, slot.word[0]), .is_inexact = true};
}

// 0: nobody delivered one.
Ticks SlotEnds::DeliveredFor(const Slot& slot) const {
  const auto unended = unended_.find(&slot);
  if (unended == unended_.end()) return 0;
  const auto [first, last] = delivered_.equal_range(unended->second);
  Ticks best = 0;
  for (auto it = first; it != last; ++it) {
    // An address is used again; the first end after the begin is this one's.
    if (it->second >= slot.word[0] && (best == 0 || it->second < best)) {
      best = it->second;
    }
  }
  return best;
}

void CutToNest(std::span<const size_t> inexact, std::vector<Op>& ops) {
  std::vector<bool> is_inexact(ops.size(), false);
  for (size_t index : inexact) is_inexact[index] = true;
  std::vector<size_t> open;
  for (size_t i = 0; i < ops.size(); ++i) {
    Op& op = ops[i];
    while (!open.empty()) {
      Op& outer = ops[open.back()];
      if (outer.end_ns <= op.begin_ns) {
        open.pop_back();
      } else if (outer.end_ns >= op.end_ns) {
        break;
      } else if (is_inexact[open.back()]) {
        outer.end_ns = std::max(outer.begin_ns, op.begin_ns);
        open.pop_back();
      } else {
        op.end_ns = outer.end_ns;
        break;
      }
    }
    open.push_back(i);
  }
}

}  // namespace stepscope
