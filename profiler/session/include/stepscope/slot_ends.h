// When records ended whose end their own thread did not write: another thread
// delivered it (an asynchronous operator, by the record's key), or the window
// closed first. For records that a WriteScope pushed and popped.
#pragma once

#include <stepscope/slot_walk.h>

#include <cstdint>
#include <unordered_map>

namespace stepscope {

class SlotEnds {
 public:
  // Reads the ends that all of the log's threads delivered; keeps `log`, which
  // must outlive it.
  explicit SlotEnds(const SlotLog& log);

  struct End {
    Ticks ticks = 0;
    bool is_inexact = false;  // not what the record's thread saw
  };
  // The end of the record that starts at `slot`: words 0 and 1 are its begin
  // and end, and an end of 0 was not written.
  End Of(const Slot& slot);

  // How many of those asked for were open when the window closed, and how many
  // another thread ended.
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
