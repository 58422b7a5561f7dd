// When operators ended whose end their own thread did not write: another
// thread delivered it (an asynchronous one, by the operator's key), or the
// window closed first.
#pragma once

#include <stepscope/event.h>
#include <stepscope/slot_decode.h>

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

namespace stepscope {

class SlotEnds {
 public:
  // Reads the ends in all of the log's threads. Keeps `log`, and counts into
  // `result`: both must outlive it.
  SlotEnds(const SlotLog& log, DecodeResult& result);

  struct End {
    Ticks ticks = 0;
    bool is_inexact = false;  // not what the record's thread saw
  };
  // The end of the event that starts at `slot`.
  End Of(const Slot& slot);

 private:
  Ticks DeliveredFor(const Slot& slot) const;

  const SlotLog& log_;
  DecodeResult& result_;
  std::unordered_map<const Slot*, const void*> unended_;   // first slot -> key
  std::unordered_multimap<const void*, Ticks> delivered_;  // by key
};

// Cuts those of `ops` (one thread's, in pre-order) whose end is inexact, so
// that all nest: no longer than what encloses them, over before what follows.
void CutToNest(std::span<const size_t> inexact, std::vector<Op>& ops);

}  // namespace stepscope
