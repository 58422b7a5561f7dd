// SlotEnds: finds the ends of records that were pushed in a WriteScope. Usually
// the record's own thread wrote the end. For an asynchronous operator another
// thread may have delivered it, which is found by the record's key. Otherwise
// the window closed before the record ended.
#pragma once

#include <stepscope/slot_walk.h>

#include <cstdint>
#include <unordered_map>

namespace stepscope {

class SlotEnds {
 public:
  // Collects the ends that threads delivered for other threads' records. `log`
  // must outlive this object.
  explicit SlotEnds(const SlotLog& log);

  struct End {
    Ticks ticks = 0;
    bool is_inexact = false;  // not written by the record's own thread
  };
  // Returns the end of the record that starts at `slot`. REQUIRES: its words 0
  // and 1 are begin and end, where an end of 0 means that none was written.
  End Of(const Slot& slot);

  // Of the records passed to Of(): how many were open when the window closed,
  // and how many ended on another thread.
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
