// SlotEnds: the ends of records that were pushed in a WriteScope. Usually their
// own thread wrote the end; another thread may have delivered it (an
// asynchronous operator; found by the record's key), or the window closed
// first.
#pragma once

#include <stepscope/slot_walk.h>

#include <cstdint>
#include <unordered_map>

namespace stepscope {

class SlotEnds {
 public:
  // Collects the ends that any thread delivered. `log` must outlive this.
  explicit SlotEnds(const SlotLog& log);

  struct End {
    Ticks ticks = 0;
    bool is_inexact = false;  // not written by the record's own thread
  };
  // The end of the record that starts at `slot`. REQUIRES: its words 0 and 1
  // are begin and end; an end of 0 was not written.
  End Of(const Slot& slot);

  // Of the records that Of() was called for: how many were open when the window
  // closed, and how many another thread ended.
  int64_t unfinished() const { return unfinished_; }
  int64_t ended_elsewhere() const { return ended_elsewhere_; }

 private:
  Ticks DeliveredFor(const Slot& slot) const;

  const SlotLog& log_;
  std::unordered_map<const Slot*, const void*> unended_;   // first slot -> key
  std::unordered_multimap<const void*, Ticks> delivered_;  // by key
  int64_t unfinished_ = 0;
  int64_t ended_elsewhere_ = 0;
};

}  // namespace stepscope
