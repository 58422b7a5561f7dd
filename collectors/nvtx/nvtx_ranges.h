// NvtxRange: one range while its window is decoded, and which of them nest.
// NVTX lets ranges overlap halfway, a row of a Trace does not.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot.h>

#include <vector>

namespace stepscope {

struct NvtxRange {
  Ticks begin = 0;
  Ticks end = 0;  // 0: not ended
  const Slot* slot = nullptr;
  bool ended_elsewhere = false;  // by another thread
};

// By beginning; of two that begin together the longer comes first.
inline bool NvtxBeginsBefore(const NvtxRange& a, const NvtxRange& b) {
  return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
}

// The ranges opened last, inner ones last, that a new one may lie in.
class NvtxNest {
 public:
  // True, and the range is in, if it overlaps none of the others halfway.
  // REQUIRES: called in the order of NvtxBeginsBefore().
  bool Enter(const NvtxRange& range) {
    while (!ends_.empty() && ends_.back() <= range.begin) ends_.pop_back();
    if (!ends_.empty() && ends_.back() < range.end) return false;
    ends_.push_back(range.end);
    return true;
  }

 private:
  std::vector<Ticks> ends_;
};

}  // namespace stepscope
