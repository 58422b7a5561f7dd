// NvtxRange: one range during decoding. NvtxNest: finds ranges that nest. NVTX
// ranges may overlap partly, but the rows of a Trace's thread may not.
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

// Sorts by begin. Of two ranges that begin together the longer one comes first.
inline bool NvtxBeginsBefore(const NvtxRange& a, const NvtxRange& b) {
  return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
}

// The open ranges, from the outermost to the innermost.
class NvtxNest {
 public:
  // Adds the range and returns true, unless it partly overlaps one of the
  // others. REQUIRES: called in the order of NvtxBeginsBefore().
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
